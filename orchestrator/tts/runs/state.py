"""The state of a run: the one fold of its log.

`RunState.apply` takes in an event and hands on a problem when it is solved, with everything that
the log has said of it; then it is forgotten, so that memory grows with the problems that run at a
time and not with the log:

    run = RunState()
    for event in read_events(folder):
        if problem := run.apply(event):
            print(problem.id, problem.work.generated_tokens, problem.seconds)

Values of a problem are functions of its `ProblemState`. Values of the whole run are counted beside
it, from the same events, on the run's clock. Pure: no clock is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tts.search import NodePath

from .events import (
    AnyEvent,
    Cancelled,
    Event,
    LoggedThought,
    ProblemSolved,
    ProblemStarted,
    Resources,
    SessionBegan,
    StepGenerated,
    StepScored,
    Used,
    problem_of,
)


class RunClock:
    """The sessions of a run laid end to end: seconds since the first one began, without gaps."""

    def __init__(self) -> None:
        self.began = 0.0
        """When the session that goes on began."""
        self.wall_s = 0.0
        """Seconds of searching so far, of all sessions."""

    def advance(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, SessionBegan):
            self.began = self.wall_s
        else:
            self.wall_s = max(self.wall_s, self.began + event.t)


def end_to_end(events: Iterable[AnyEvent]) -> Iterator[tuple[float, AnyEvent]]:
    """Every event with the time at which its session began, in seconds on the run's clock."""
    clock = RunClock()
    for event in events:
        clock.advance(event)
        yield clock.began, event


@dataclass(slots=True)
class WorkCounts:
    """What the engines did, counted from their answers: for a problem, a server, or a run.

    Cancelled requests and prompts that were sent ahead are not counted.
    """

    generator_calls: int = 0
    """Answered requests to the generator, speculative ones included."""
    generated_tokens: int = 0
    """Tokens of these answers."""
    thinking_tokens: int = 0
    """Tokens of the thinking in them, with the texts that closed it where a budget ended."""
    verifier_calls: int = 0
    """Answered requests to the verifier."""
    verifier_tokens: int = 0
    """Prompt tokens of these requests."""
    reused_tokens: int = 0
    """Prompt tokens that a prompt of the same problem began with before."""
    critique_tokens: int = 0
    """Tokens that the verifier generated."""
    no_verdict: int = 0
    """Critiques without a verdict, and candidates on which a command failed."""
    cached_scores: int = 0
    """Scores without a request: an equal step had been scored before, or was being scored."""

    def add(self, event: Event) -> None:
        """Count an event, if it is an answer."""
        if isinstance(event, StepGenerated):
            self.generator_calls += 1
            self.generated_tokens += event.tokens
            for thought in event.thoughts:
                if thought.thinking:
                    self.thinking_tokens += len(thought.ids)
        elif isinstance(event, StepScored):
            if event.cached:
                self.cached_scores += 1
            else:
                self.verifier_calls += 1
                self.verifier_tokens += event.prompt_tokens
                self.reused_tokens += event.reused
                self.critique_tokens += event.tokens
                self.no_verdict += event.no_verdict

    @property
    def cache_hit_rate(self) -> float | None:
        """Share of the scores that needed no request; None without scores."""
        scores = self.verifier_calls + self.cached_scores
        return self.cached_scores / scores if scores else None


@dataclass(slots=True)
class ProblemState:
    """The state of a problem by the log so far.

    Events are kept with the time at which their session began, in the order in which they came;
    `began + event.t` is a time on the run's clock.
    """

    id: str
    keeps_events: bool = True
    """Whether requests are kept; otherwise they are only counted."""
    work: WorkCounts = field(default_factory=WorkCounts)
    start: ProblemStarted | None = None
    """Its latest start; None where the log has lost it."""
    first_started: float | None = None
    """When it was first started, on the run's clock, in seconds."""
    started: float | None = None
    """When it was started in the session that goes on with it, or solved it."""
    resumed: bool = False
    """Whether an earlier session has begun it, so that its times do not say how long it took."""
    generated: list[tuple[float, StepGenerated]] = field(default_factory=list)
    scored: list[tuple[float, StepScored]] = field(default_factory=list)
    uses: list[tuple[float, Used]] = field(default_factory=list)
    cancelled: list[tuple[float, Cancelled]] = field(default_factory=list)
    solution: ProblemSolved | None = None
    solved_at: float | None = None
    """When its solution was written, on the run's clock."""
    repeated: bool = False
    """Whether it had been solved before, as when two processes wrote one log."""

    def apply(self, event: Event, began: float = 0.0) -> None:
        """Take in an event of this problem, of a session that began at `began`."""
        self.work.add(event)
        match event:
            case StepGenerated() if self.keeps_events:
                self.generated.append((began, event))
            case StepScored() if self.keeps_events:
                self.scored.append((began, event))
            case Used() if self.keeps_events:
                self.uses.append((began, event))
            case Cancelled() if self.keeps_events:
                self.cancelled.append((began, event))
            case ProblemStarted():
                self.started = began + event.t
                if self.first_started is None:
                    self.first_started = self.started
                self.start = event
            case ProblemSolved():
                self.solution = event
                self.solved_at = began + event.t
            case _:
                pass

    @property
    def seconds(self) -> float | None:
        """From its start to its result, grading included, in the session that solved it."""
        if self.started is None or self.solved_at is None:
            return None
        return self.solved_at - self.started

    def answer(self, vote: str) -> str | None:
        """The answer that this vote chooses; None without one, or while it is open."""
        return self.solution.answers.get(vote) if self.solution else None

    def correct(self, vote: str) -> bool | None:
        """Whether that answer is right; None without a reference, or while it is open."""
        if self.solution is None or self.solution.correct is None:
            return None
        return self.solution.correct.get(vote)

    @property
    def question(self) -> str:
        """The question with the conversation before it; empty where the log has lost it."""
        return problem_of(self.start).full_question if self.start else ""

    def thoughts(self) -> Iterator[tuple[NodePath, LoggedThought, float, StepGenerated]]:
        """Every thought: its node, itself, the begin of its session, the answer that it is from.

        The first thought of an answer stands at the answer's node, each further one below it.
        """
        for began, event in self.generated:
            node = event.node
            for thought in event.thoughts:
                yield node, thought, began, event
                node = (*node, 0)

    def tokens_by_node(self) -> dict[NodePath, int]:
        """How many tokens each thought has."""
        return {node: len(thought.ids) for node, thought, _, _ in self.thoughts()}

    def completed_paths(self) -> list[list[NodePath]]:
        """The nodes on the path of each completion, from the first thought to the last."""
        completions = self.solution.completions if self.solution else ()
        return [[end.node[:depth] for depth in range(1, len(end.node) + 1)] for end in completions]


class Change(NamedTuple):
    """A file with a function of the user's became another while the run was interrupted."""

    sha256: str
    solved: int
    """How many problems had been solved by then."""


class RunState(RunClock):
    """The state of a run by its log so far: its clock, its sessions, the open problems."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = 0
        self.limits: tuple[int, int] | None = None
        """Limits in flight by the last session: generator requests, verifier tokens."""
        self.work = WorkCounts()
        """What the engines did in the whole run."""
        self.resources: dict[int, Resources] = {}
        """Each session's latest resource use, by its number, from 1."""
        self.open: dict[str, ProblemState] = {}
        """The problems that the log has mentioned and that are not solved, by id."""
        self.solved: dict[str, int] = {}
        """The ids of the others, each with how many were solved before it."""
        self.changed: dict[str, Change] = {}
        """The latest change of each function's file, by role."""

    def apply(self, event: AnyEvent) -> ProblemState | None:
        """Take in the next event; returns the problem that it solves, which is then forgotten.

        What comes of a problem after its solution counts for the run, and changes no problem.
        """
        self.advance(event)
        if isinstance(event, SessionBegan):
            self.sessions += 1
            self.limits = event.limits or self.limits
            for problem in self.open.values():
                problem.resumed = True
            self.change(event.changed)
            return None
        name: str | None = getattr(event, "problem", None)
        if name is None:
            if isinstance(event, Resources):
                self.resources[self.sessions] = event
            return None
        self.work.add(event)
        over = name in self.solved
        if over and not isinstance(event, ProblemSolved):
            return None
        state = self.open.get(name)
        if state is None:
            state = self.open[name] = ProblemState(name, repeated=over)
        state.apply(event, self.began)
        if state.solution is None:
            return None
        self.solved.setdefault(name, len(self.solved))
        return self.open.pop(name)

    def change(self, files: Mapping[str, str]) -> None:
        """Files of functions, by role, are others from now on.

        What they gave for open problems is forgotten: no tree is made of two of them.
        """
        for role, sha256 in files.items():
            self.changed[role] = Change(sha256, len(self.solved))
        for problem in self.open.values() if files else ():
            problem.scored.clear()
            if "strategy" in files:
                problem.generated.clear()


def solved_problems(
    events: Iterable[AnyEvent], run: RunState | None = None
) -> Iterator[ProblemState]:
    """The solved problems of a log, in the order in which they were solved.

    After the last of them `run` has those that are open.
    """
    run = run or RunState()
    return (problem for event in events if (problem := run.apply(event)))


def all_problems(events: Iterable[AnyEvent]) -> Iterator[ProblemState]:
    """The solved problems of a log, then those that are open."""
    run = RunState()
    yield from solved_problems(events, run)
    yield from run.open.values()
