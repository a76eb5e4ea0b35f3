"""Everything that is measured of a run, from its log in one pass; docs/reference/measures.md
defines it all.

Memory grows by some 170 bytes a problem, and not with requests: sums and counts are kept, and the
solved problems themselves in a temporary file where they are many. The log of an unfinished run
gives the measures of its events so far.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import NamedTuple, Self

import msgspec

from tts.base.errors import RunError
from tts.build.spec import ROLES, Role
from tts.grading.code import uses_introspection
from tts.search import NodePath, Stop

from .config import RunConfig
from .curves import AccuracyOverN
from .events import AnyEvent, Idle, ProblemSolved, ProblemStarted, Used
from .records import EngineRequest
from .requests import SpeculationOutcome, request_of
from .state import ProblemState, RunState, WorkCounts
from .verdicts import ScoreCalibration


@dataclass(frozen=True, slots=True)
class TreeMeasures:
    """The tree of a solved problem: what became of its tokens, how deep and wide it is.

    Every thought's tokens are in the log, and so is the path of every completion. So the tokens
    that a run wrote and the tokens that it needed can be distinguished exactly.
    """

    useful_tokens: int
    """Generated tokens of the nodes on the paths of its completions, each node once."""
    completion_tokens: int
    """Tokens of all completions' paths, shared beginnings counted for each of them."""
    completion_s: float | None
    """The sum over completions of the time from the problem's start until the completion was
    written and, if it was, scored; None if the problem was begun in an earlier session."""
    unclosed: int
    """Completions that ended inside their thinking."""
    unended: int
    """Completions of a search that no limit cut off, whose chains did not end by themselves."""
    first_step_s: float | None
    """Seconds from the problem's start to the generator's first answer; None as `completion_s`."""
    nodes_by_depth: tuple[int, ...]
    """Nodes of the tree at depth 1, 2, ..., without what was sent ahead in vain."""
    tokens: int
    """Tokens of these nodes."""


class ProblemMeasures(NamedTuple):
    """A solved problem."""

    id: str
    question: str
    """A hash of its conversation; empty in logs that do not hold it."""
    text: str
    """The question itself; empty in logs that do not hold it."""
    level: int | str | None
    reference: str | None
    answers: Mapping[str, str | None]
    """The answer that each rule chooses."""
    scores: Mapping[str, tuple[float | None, float | None]]
    """The score and the probability of the best completion with each of these answers."""
    correct: Mapping[str, bool] | None
    """Whether the answer of each rule is right; None without a reference."""
    any_correct: bool | None
    completions: int
    tokens: int
    """Generated for it, whether they were needed or not."""
    critique_tokens: int
    """Tokens that the verifier generated for it."""
    unused_tokens: int
    """Tokens of speculative answers that its search did not ask for."""
    verifier_calls: int
    """Answered requests to the verifier."""
    verifier_tokens: int
    """Tokens of its verifier requests' prompts."""
    compute: float | None
    """FLOPs of both models; None where the size of one that worked is not known."""
    seconds: float | None
    """From its start to its result, grading included, in the session that solved it."""
    tree_digest: str
    limit: str | None
    undecided: int
    """Comparisons of its answers that could not be decided."""
    introspective: int
    """Its answers in code that name what code that deceives its tests needs."""

    @property
    def search_tokens(self) -> int:
        """Generated tokens of both models, without speculation in vain."""
        return self.tokens + self.critique_tokens - self.unused_tokens

    def right(self, rule: str) -> bool:
        """Whether the rule's answer is right; an undecided comparison is not."""
        return bool(self.correct and self.correct.get(rule))


IN_MEMORY = 2**20
"""Bytes of solved problems that are kept in memory: of more, all are in a temporary file."""


class SolvedProblems(Mapping[str, ProblemMeasures]):
    """The solved problems of a run by id, in the order in which they were solved."""

    def __init__(self, places: Mapping[str, int]) -> None:
        """`places` has the number of each id in that order (`RunState.solved`)."""
        self._places = places
        self._ends = array("q", [0])
        """The place in the file where each ends and the next one begins."""
        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - as long as this is

    def __del__(self) -> None:
        self._file.close()

    def append(self, problem: ProblemMeasures) -> None:
        """Keep the problem that was solved last; raises RunError if the disk refuses."""
        try:
            self._file.seek(0, os.SEEK_END)
            self._file.write(json.dumps(problem).encode())  # ASCII: text may hold half a pair
            self._ends.append(self._file.tell())
        except OSError as error:
            raise RunError(
                f"A temporary file cannot be written: {error.strerror or error}.",
                hint="Free some space, or name another folder for such files: TMPDIR.",
            ) from error

    def __getitem__(self, name: str) -> ProblemMeasures:
        place = self._places[name]
        begin, end = self._ends[place], self._ends[place + 1]
        self._file.seek(begin)
        return msgspec.convert(json.loads(self._file.read(end - begin)), ProblemMeasures)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def right(self, rule: str) -> dict[str, float]:
        """1 for each problem whose answer by this rule is right, 0 for each other with a reference.

        The keys are those of the run, not copies.
        """
        return {name: p.right(rule) for name, p in self.items() if p.correct is not None}


SAMPLED = 2**16
"""Requests of an engine, at most, whose distributions are exact; of more, they are of a sample."""


@dataclass(slots=True)
class RequestMeasures:
    """The requests that one engine was sent.

    Each answered one is in the sample. Where that would grow beyond SAMPLED every second one leaves
    it, and from then on half as many enter it: it is spread evenly over the run.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    """Requests by kind: main, eager, speculative, prefetch; `cancelled` for those of any kind."""
    count: int = 0
    """All answered requests."""
    total_tokens: int = 0
    """Tokens of all answered requests."""
    busy_s: float = 0.0
    """Seconds in flight of all answered requests, without prompts that were sent ahead."""
    scheduled_tokens: array[int] = field(default_factory=lambda: array("l"))
    """Tokens of each request in the sample: its prompt's and the generated ones."""
    generated_tokens: array[int] = field(default_factory=lambda: array("l"))
    """The latter alone."""
    seconds: array[float] = field(default_factory=lambda: array("d"))
    """How long each request in the sample was in flight."""
    every: int = 1
    """One request in so many is in the sample."""

    def add(self, request: EngineRequest) -> None:
        """Take in a request."""
        if request.cancelled is not None:
            self.kinds["cancelled"] += 1
            return
        self.kinds[request.kind] += 1
        seconds, generated = request.seconds, request.tokens or 0
        tokens = request.prompt_tokens + generated
        self.total_tokens += tokens
        if request.kind != "prefetch":
            self.busy_s += seconds
        if self.count % self.every == 0:
            if len(self.seconds) == SAMPLED:
                self._thin()
            self.scheduled_tokens.append(tokens)
            self.generated_tokens.append(generated)
            self.seconds.append(seconds)
        self.count += 1

    def _thin(self) -> None:
        self.every *= 2
        self.scheduled_tokens = self.scheduled_tokens[::2]
        self.generated_tokens = self.generated_tokens[::2]
        self.seconds = self.seconds[::2]

    @property
    def seconds_per_token(self) -> list[float]:
        """Seconds of each request in the sample over its generated tokens, where it has some."""
        return [
            s / count for s, count in zip(self.seconds, self.generated_tokens, strict=True) if count
        ]


class LoadOverTime:
    """The mean load in flight in each of equal stretches of time, of which there are never many.

    Where time goes beyond the last stretch, neighbours are joined and all become twice as wide:
    the integrals of joined stretches add up, so nothing is lost but resolution.
    """

    def __init__(self, stretches: int = 256, width_s: float = 1e-3) -> None:
        """`stretches`: how many at most, an even number; `width_s`: how wide they are at first."""
        self.width_s = width_s
        """Seconds in a stretch, by now."""
        self._integrals = [0.0] * stretches

    def add(self, start: float, end: float, load: float) -> None:
        """Something of this load was in flight from `start` to `end`."""
        while end > self.width_s * len(self._integrals):
            self._join()
        width, integrals = self.width_s, self._integrals
        for place in range(int(start / width), len(integrals)):
            low, high = place * width, (place + 1) * width
            # conditions in place of min and max, which take twice as long
            overlap = (end if end < high else high) - (start if start > low else low)
            integrals[place] += load * max(0.0, overlap)
            if high >= end:
                return

    def means(self, wall_s: float) -> list[float]:
        """The mean load of each stretch of a run that took `wall_s`; the last one may be cut."""
        means = []
        for place, integral in enumerate(self._integrals):
            begin = place * self.width_s
            if begin >= wall_s:
                break
            means.append(integral / min(self.width_s, wall_s - begin))
        return means

    @property
    def total(self) -> float:
        """Load times seconds, of everything."""
        return sum(self._integrals)

    def _join(self) -> None:
        pairs = zip(self._integrals[::2], self._integrals[1::2], strict=True)
        joined = [one + other for one, other in pairs]
        self._integrals = joined + [0.0] * (len(self._integrals) - len(joined))
        self.width_s *= 2


class Measures:
    """What a run's events add up to, over all of its sessions laid end to end."""

    def __init__(self, config: RunConfig | None = None) -> None:
        """`config` has the vote that chooses the answers, and the models' parameters; without them
        none is right, and no compute is known.
        """
        self.config = config = config or RunConfig()
        self.run = RunState()
        """The run itself, which this folds."""
        self.servers: dict[str, WorkCounts] = {}
        """The work of each of several servers, by address; empty where there was one."""
        self.speculation = SpeculationOutcome()
        self._idle_s: dict[Role, dict[str, float]] = {
            engine: defaultdict(float) for engine in ROLES
        }
        self.in_flight: dict[Role, LoadOverTime] = {engine: LoadOverTime() for engine in ROLES}
        """What all requests, cancelled ones too, had in flight: `EngineRequest.load`, or the
        critiques of each score."""
        self.calibration = ScoreCalibration()
        """What each problem tells of the verifier's scale."""
        self.requests: dict[Role, RequestMeasures] = {engine: RequestMeasures() for engine in ROLES}
        self.problems = SolvedProblems(self.run.solved)
        self.curve = AccuracyOverN.of(config)
        """None where the parts of a problem's completions are no smaller runs."""
        self.judged = 0
        """Solved problems that have a reference."""
        self.right: Counter[str] = Counter()
        """How many of them each rule's answers have right; every rule is a key."""
        self.any_right = 0
        """How many of them have a right completion."""
        self.lost_tokens = 0
        """Generated tokens for which budgets had no room."""
        self.useful_tokens = 0
        """Tokens of the nodes on the paths of completions, each node once."""
        self.unclosed = 0
        self.unended = 0
        """Sums of these `TreeMeasures`."""
        self.widths: list[Counter[int]] = []
        """Trees by the number of their nodes at depth 1, 2, ..., as far as they are so deep."""
        self.latencies_s = array("d")
        """From the start of each problem to its result, where one session did both."""
        self.first_steps_s = array("d")
        """From the start of each problem to the generator's first answer, likewise."""
        self.compute: float | None = None
        """FLOPs of both models for the solved problems; None where they are not known of all."""
        self._completion_tokens, self._completion_s = 0, 0.0

    @classmethod
    def of(cls, events: Iterable[AnyEvent], config: RunConfig | None = None) -> Self:
        """The measures of a whole log."""
        measures = cls(config)
        for event in events:
            measures.add(event)
        return measures

    def add(self, event: AnyEvent) -> None:
        """Take in the next event; the first solution of a problem is the one that counts."""
        problem = self.run.apply(event)
        if server := getattr(event, "server", ""):
            self.servers.setdefault(server, WorkCounts()).add(event)
        if request := request_of(event, self.run.began):
            self._add_request(request)
        elif isinstance(event, Used):
            self.speculation.use(event.problem, event.node)
        elif isinstance(event, Idle):
            self._idle_s[event.engine][event.why] += event.until - event.since
        if problem and problem.solution and not problem.repeated:
            self._add_problem(problem, problem.solution)

    def _add_request(self, request: EngineRequest) -> None:
        self.requests[request.engine].add(request)
        critiques = self.config.critiques
        load = critiques if request.engine == "verifier" and critiques else request.load
        self.in_flight[request.engine].add(request.sent, request.done, load)
        if request.kind == "speculative" and request.engine == "generator":
            self.speculation.add(request)

    def _add_problem(self, state: ProblemState, solved: ProblemSolved) -> None:
        tree = tree_measures(state)
        unused = self.speculation.solved(state.id)
        problem = problem_measures(state, solved, tree, self.config.model_parameters, unused)
        before = self.compute if self.problems else 0.0
        has_sum = before is not None and problem.compute is not None
        self.compute = (before or 0.0) + (problem.compute or 0.0) if has_sum else None
        self.problems.append(problem)
        self.calibration.add(solved)
        if self.curve:
            self.curve.add(solved)
        if problem.correct is not None:
            self.judged += 1
            for rule, right in problem.correct.items():
                self.right[rule] += right
            self.any_right += bool(problem.any_correct)
        if problem.seconds is not None:
            self.latencies_s.append(problem.seconds)
        self.lost_tokens += solved.lost_tokens
        self.useful_tokens += tree.useful_tokens
        self.unclosed += tree.unclosed
        self.unended += tree.unended
        if tree.first_step_s is not None:
            self.first_steps_s.append(tree.first_step_s)
        if tree.completion_s is not None:
            self._completion_tokens += tree.completion_tokens
            self._completion_s += tree.completion_s
        for depth, width in enumerate(tree.nodes_by_depth):
            if depth == len(self.widths):
                self.widths.append(Counter())
            self.widths[depth][width] += 1

    @property
    def wall_s(self) -> float:
        """Seconds of searching, all sessions together."""
        return self.run.wall_s

    @property
    def generated_tokens(self) -> int:
        """Tokens of all answers of the generator."""
        return self.run.work.generated_tokens

    @property
    def idle_s(self) -> dict[Role, dict[str, float]]:
        """Seconds in which an engine was idle, by reason; with several servers the mean."""
        servers = max(1, len(self.servers))
        return {
            engine: {why: seconds / servers for why, seconds in by_why.items()}
            for engine, by_why in self._idle_s.items()
        }

    @property
    def goodput(self) -> float | None:
        """Precise goodput (FastTTS): mean tokens of a completion over its mean time, in tokens/s.

        Both over all completions of problems that one session has solved; None without any.
        """
        return self._completion_tokens / self._completion_s if self._completion_s else None

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds of the orchestrator, of the sessions that say it; None if none does."""
        sessions = self.run.resources.values()
        return sum(session.cpu_s for session in sessions) if sessions else None

    @property
    def cpu_share(self) -> float | None:
        """`cpu_s` over the time of its sessions: 1.0 is one processor, always busy."""
        seconds = sum(session.t for session in self.run.resources.values())
        return (self.cpu_s or 0.0) / seconds if seconds else None

    @property
    def energy_j(self) -> float | None:
        """Joules of all GPUs of the orchestrator's machine; None where NVML told nothing."""
        energies = [each.energy_j for each in self.run.resources.values() if each.energy_j]
        return sum(sum(by_gpu.values()) for by_gpu in energies) if energies else None

    def mean_in_flight(self, engine: Role) -> float | None:
        """Mean load in flight over the wall time: the integral over it is that of the requests'
        durations (Little's law). None without any time.
        """
        return self.in_flight[engine].total / self.wall_s if self.wall_s else None

    def batch_utilization(self, engine: Role) -> float | None:
        """Mean load in flight over what may be; None where the log does not hold the limit."""
        load = self.mean_in_flight(engine)
        if self.run.limits is None or load is None:
            return None
        return load / self.run.limits[ROLES.index(engine)]

    def judged_problems(self) -> Iterator[ProblemMeasures]:
        """The solved problems that have a reference."""
        return (problem for problem in self.problems.values() if problem.correct is not None)

    def rated_problems(self) -> Iterator[ProblemMeasures]:
        """The problems that accuracies and costs are about: the judged ones, or all without any."""
        return self.judged_problems() if self.judged else iter(self.problems.values())

    def accuracy(self, rule: str) -> float | None:
        """Share of the judged problems that a rule's answers have right; None without any."""
        return self.right[rule] / self.judged if self.judged else None


def measured_problems(
    events: Iterable[AnyEvent], model_parameters: Mapping[Role, int]
) -> Iterator[ProblemMeasures]:
    """The measures of each solved problem of a log, one at a time: none is kept."""
    run, ahead = RunState(), SpeculationOutcome()
    for event in events:
        problem = run.apply(event)
        if isinstance(event, Used):
            ahead.use(event.problem, event.node)
        request = request_of(event, run.began)
        if request and request.kind == "speculative" and request.engine == "generator":
            ahead.add(request)
        if problem and problem.solution:
            tree, unused = tree_measures(problem), ahead.solved(problem.id)
            yield problem_measures(problem, problem.solution, tree, model_parameters, unused)


def problem_measures(
    problem: ProblemState,
    solved: ProblemSolved,
    tree: TreeMeasures,
    model_parameters: Mapping[Role, int],
    unused_tokens: int,
) -> ProblemMeasures:
    """The measures of a problem and of its solution."""
    return ProblemMeasures(
        id=problem.id,
        question=_hashed(problem.start) if problem.start else "",
        text=problem.start.question if problem.start else "",
        level=solved.level,
        reference=solved.reference,
        answers=solved.answers,
        scores=_scores(solved),
        correct=solved.correct,
        any_correct=solved.any_correct,
        completions=len(solved.completions),
        tokens=problem.work.generated_tokens,
        critique_tokens=problem.work.critique_tokens,
        unused_tokens=unused_tokens,
        verifier_calls=problem.work.verifier_calls,
        verifier_tokens=problem.work.verifier_tokens,
        compute=compute_of(problem, tree, model_parameters),
        seconds=problem.seconds,
        tree_digest=solved.tree_digest,
        limit=solved.limit,
        undecided=solved.undecided,
        introspective=sum(uses_introspection(group.answer) for group in solved.groups),
    )


def compute_of(
    problem: ProblemState, tree: TreeMeasures, model_parameters: Mapping[Role, int]
) -> float | None:
    """FLOPs of both models for a problem: 2 N for each token that they compute for it.

    N are the parameters that a token is multiplied with, with a multiplication and an addition each
    (Kaplan et al. 2020, arXiv 2001.08361, section 2.1, without its term for attention). None where
    N of a model that worked is not known.

    Prefixes are reused perfectly. Of the generator the prompt and every thought of the tree count,
    each once: what is sent ahead in vain is left out, so that every schedule has the same number.
    Of the verifier the prompts count without what one before began with, and what it generates. An
    engine that loses a prefix from its cache computes more, and so does one for requests that are
    cancelled: this is what the search needs, not what an engine did, of which only some tell how
    much their caches served.
    """
    work = problem.work
    prompt = min((event.prompt_tokens for _, event in problem.generated), default=0)
    computed: dict[Role, int] = {
        "generator": prompt + tree.tokens,
        "verifier": work.verifier_tokens - work.reused_tokens + work.critique_tokens,
    }
    worked = {role: tokens for role, tokens in computed.items() if tokens}
    if worked.keys() - model_parameters.keys():
        return None
    return float(sum(2 * model_parameters[role] * tokens for role, tokens in worked.items()))


def tree_measures(problem: ProblemState) -> TreeMeasures:
    """The measures of a solved problem's tree."""
    paths = problem.completed_paths()
    on_a_path = {node for path in paths for node in path}
    ends = [path[-1] for path in paths if path]
    uses = {event.node for _, event in problem.uses}
    own: dict[NodePath, int] = {}
    written_at: dict[NodePath, float] = {}
    in_vain: set[NodePath] = set()  # sent ahead and never asked for
    thinking: set[NodePath] = set()
    own_ends: set[NodePath] = set()
    for node, thought, began, event in problem.thoughts():
        own[node] = len(thought.ids)
        written_at[node] = began + event.done
        if event.kind == "speculative" and event.node not in uses and node not in on_a_path:
            in_vain.add(node)
        if thought.thinking:
            thinking.add(node)
        if thought.stop in (Stop.END, Stop.CUT) or (
            thought.stop is Stop.STEP and not thought.text.strip()
        ):
            own_ends.add(node)
    nodes = own.keys() - in_vain
    depths = Counter(map(len, nodes))
    useful = 0
    for _, event in problem.generated:
        needed, node = 0, event.node
        for thought in event.thoughts:
            needed += len(thought.ids) if node in on_a_path else 0
            node = (*node, 0)
        useful += min(needed, event.tokens)  # a text that closed a thinking was not generated
    completion_s = first_step_s = None
    if problem.started is not None and not problem.resumed:
        for began, score in problem.scored:
            written_at[score.node] = max(began + score.t, written_at.get(score.node, 0.0))
        started = problem.started
        completion_s = sum((written_at.get(end, started) - started for end in ends), 0.0)
        if problem.generated:
            began, first = problem.generated[0]
            first_step_s = began + first.done - started
    cut_off = problem.solution is not None and problem.solution.limit is not None
    return TreeMeasures(
        useful_tokens=useful,
        completion_tokens=sum(own.get(node, 0) for path in paths for node in path),
        completion_s=completion_s,
        unclosed=len(thinking.intersection(ends)),
        unended=0 if cut_off else sum(end not in own_ends for end in ends),
        first_step_s=first_step_s,
        nodes_by_depth=tuple(depths[depth] for depth in range(1, max(depths, default=0) + 1)),
        tokens=sum(own[node] for node in nodes),
    )


def _scores(event: ProblemSolved) -> dict[str, tuple[float | None, float | None]]:
    answers = set(event.answers.values())
    scores: dict[str, tuple[float | None, float | None]] = {}
    for end in event.completions:  # the best first
        answer = event.groups[end.group].answer if end.group >= 0 else None
        if answer is not None and answer in answers:
            scores.setdefault(answer, (end.score, end.probability))
    return scores


def _hashed(start: ProblemStarted) -> str:
    turns = [part for turn in start.history for part in (turn.role, turn.content)]
    text = "\0".join([*turns, start.question])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
