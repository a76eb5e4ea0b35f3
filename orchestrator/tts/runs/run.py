"""A run's folder for programs: its problems and requests as records or data frames.

run = Run.load("runs/mine")
for problem in run.problems:
    print(problem.id, problem.answer, problem.correct, problem.completions[0].steps)
problems, requests = run.to_frames()
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from tts.build.errors import RunError, TtsError
from tts.search import NodePath

from .checks import check_run, read_summary
from .events import AnyEvent, Generated, ProblemSolved, ProblemStarted, Scored
from .folder import Json, has_finished, read_config, read_problems
from .groups import is_group, read_group
from .log import read_events
from .measured_run import MeasuredRun
from .measures import Measures
from .named_measures import named_measures
from .records import CompletionRecord, ProblemRecord, RequestRecord
from .requests import end_to_end, requests_of

FrameLibrary = Literal["pandas", "polars"]
_VOTES = ("best", "weighted", "majority")


@dataclass(frozen=True)
class Run:
    """A run, finished or not. The log is read when its problems or requests are first asked for."""

    folder: Path
    config: Json
    """What was asked for: run.json."""
    summary: Json | None
    """summary.json; None if the run has not finished."""

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """The run in `folder`; raises RunError if it holds none, or its parts contradict."""
        folder = Path(folder).expanduser()
        if is_group(folder):
            names = ", ".join(member.folder for member in read_group(folder)[1])
            raise RunError(
                f"{folder} holds several runs.", hint=f"Name the folder of one of them: {names}."
            )
        config = read_config(folder)
        check_run(folder)
        return cls(folder, config, read_summary(folder) if has_finished(folder) else None)

    @cached_property
    def problems(self) -> tuple[ProblemRecord, ...]:
        """The solved problems, in the order in which they were solved; raises RunError."""
        questions = {problem.id: problem.question for problem in read_problems(self.folder)}
        return tuple(solved_problems(read_events(self.folder), self.config["vote"], questions))

    @cached_property
    def requests(self) -> tuple[RequestRecord, ...]:
        """All requests to both engines, in the order in which they ended; raises RunError."""
        return tuple(requests_of(read_events(self.folder)))

    @cached_property
    def measures(self) -> dict[str, float | int | None]:
        """Its measures by name, as docs/metrics.md defines them; raises RunError.

        None is what the log does not say.
        """
        run = MeasuredRun(self.folder, self.config, Measures.of(read_events(self.folder)))
        return {measure.name: measure.value for measure in named_measures(run)}

    def to_frames(self, library: FrameLibrary | None = None) -> tuple[Any, Any]:
        """Problems and requests as data frames of `library`, or of whichever is installed.

        A row for each record, a column for each field; nodes are text such as `0.2.1`, levels text
        too. In place of the completions stands their number. Raises TtsError if the library is not
        installed.
        """
        frame = _frame_type(library)
        return frame(_problem_columns(self.problems)), frame(_request_columns(self.requests))


@dataclass(slots=True)
class _Unfinished:
    """What the log has said so far of a problem that is being solved."""

    started: float | None = None
    question: str | None = None
    tokens: int = 0
    texts: dict[NodePath, str] = field(default_factory=dict)
    scores: dict[NodePath, float] = field(default_factory=dict)


def solved_problems(
    events: Iterable[AnyEvent], vote: str, questions: dict[str, str]
) -> Iterator[ProblemRecord]:
    """The solved problems of a log, in the order in which they were solved.

    `questions` has those that the log does not say, by problem. Little is kept of what is solved.
    """
    unfinished: dict[str, _Unfinished] = {}
    for began, event in end_to_end(events):
        match event:
            case ProblemStarted():
                problem = unfinished.setdefault(event.problem, _Unfinished())
                problem.started = began + event.t
                problem.question = event.question or questions.get(event.problem)
            case Generated():
                problem = unfinished.setdefault(event.problem, _Unfinished())
                problem.tokens += event.tokens
                node = event.node
                for thought in event.thoughts:
                    problem.texts[node] = thought.text
                    node = (*node, 0)
            case Scored():
                problem = unfinished.setdefault(event.problem, _Unfinished())
                problem.scores[event.node] = event.score
            case ProblemSolved():
                problem = unfinished.pop(event.problem, _Unfinished())
                seconds = None if problem.started is None else began + event.t - problem.started
                yield _problem(event, vote, problem, seconds)


def _problem(
    event: ProblemSolved, vote: str, problem: _Unfinished, seconds: float | None
) -> ProblemRecord:
    return ProblemRecord(
        id=event.problem,
        question=problem.question,
        level=event.level,
        reference=event.reference,
        answer=event.answers.get(vote),
        answers=event.answers,
        correct=None if event.correct is None else event.correct.get(vote),
        completions=tuple(_completions(event, problem)),
        tree_digest=event.tree_digest,
        tokens=problem.tokens,
        seconds=None if seconds is None else round(seconds, 6),
        limit=event.limit,
    )


def _completions(event: ProblemSolved, problem: _Unfinished) -> Iterator[CompletionRecord]:
    for done in event.completions:
        path = [done.node[:depth] for depth in range(1, len(done.node) + 1)]
        # a node that no request wrote was not written at all: its prompt filled the context
        chain = [(problem.texts.get(node, ""), problem.scores.get(node)) for node in path]
        answer = event.groups[done.group].answer if event.groups and done.group >= 0 else None
        yield CompletionRecord.of(done.node, chain, done.score, answer)


def _problem_columns(problems: Sequence[ProblemRecord]) -> dict[str, list[Any]]:
    return {
        "id": [p.id for p in problems],
        "question": [p.question for p in problems],
        "level": [None if p.level is None else str(p.level) for p in problems],
        "reference": [p.reference for p in problems],
        "answer": [p.answer for p in problems],
        **{f"answer_{vote}": [p.answers.get(vote) for p in problems] for vote in _VOTES},
        "correct": [p.correct for p in problems],
        "completions": [len(p.completions) for p in problems],
        "tokens": [p.tokens for p in problems],
        "seconds": [p.seconds for p in problems],
        "limit": [p.limit for p in problems],
        "tree_digest": [p.tree_digest for p in problems],
    }


def _request_columns(requests: Sequence[RequestRecord]) -> dict[str, list[Any]]:
    same = ("engine", "kind", "problem", "sent", "done", "prompt_tokens", "tokens")
    return {
        **{name: [getattr(request, name) for request in requests] for name in same},
        "node": [".".join(map(str, request.node)) for request in requests],
        "generator_in_flight": [request.in_flight[0] for request in requests],
        "verifier_in_flight": [request.in_flight[1] for request in requests],
        "cancelled": [request.cancelled for request in requests],
        "trigger": [request.trigger for request in requests],
    }


def _frame_type(library: FrameLibrary | None) -> Callable[[dict[str, list[Any]]], Any]:
    for name in get_args(FrameLibrary) if library is None else (library,):
        try:
            frame: Callable[[dict[str, list[Any]]], Any] = importlib.import_module(name).DataFrame
        except ImportError:
            continue
        return frame
    raise TtsError(
        f"There is no {library or 'pandas or polars'} here to make data frames with.",
        hint=f"Install it: pip install {library or 'pandas'}",
    )
