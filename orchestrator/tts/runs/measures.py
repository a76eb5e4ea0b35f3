"""Everything that is measured of a run, from its log in one pass; docs/metrics.md defines it all.

Memory grows by about a kilobyte a problem and not with the requests. A log of a run that goes on,
or was cut short, gives the measures of what there is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tts.compat import Self

from .calibration import Calibration
from .events import AnyEvent, ProblemSolved, ProblemStarted, Resources, Session
from .in_flight import InFlight
from .quantiles import QuantileSketch
from .records import ENGINES, Engine, RequestRecord
from .state import ProblemState, RunState
from .trees import TreeMeasures, tree_measures
from .used_resources import UsedResources
from .utilization import Utilization


@dataclass(frozen=True, slots=True)
class ProblemMeasures:
    """A solved problem."""

    id: str
    question: str | None
    """A hash of its text; None in logs that do not hold it."""
    level: int | str | None
    answers: Mapping[str, str | None]
    """By rule."""
    correct: Mapping[str, bool] | None
    """By rule; None without a reference."""
    any_correct: bool | None
    right_roots: tuple[int, ...]
    """The first indices of the completions whose answer equals the reference, each once."""
    tokens: int
    """Generated for it, whether they were needed or not."""
    verifier_tokens: int
    """Of its verifier requests' prompts."""
    seconds: float | None
    """From its start to its result, grading included, in the session that solved it."""
    tree: TreeMeasures
    limit: str | None

    def right(self, rule: str) -> bool:
        """Whether the rule's answer is right; an undecided comparison is not."""
        return bool(self.correct and self.correct.get(rule))


@dataclass(slots=True)
class EngineRequests:
    """The requests that one engine was sent."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Requests by kind: main, eager, speculative, prefetch; `cancelled` for those of any kind."""
    scheduled_tokens: QuantileSketch = field(default_factory=QuantileSketch)
    """Tokens of an answered request: its prompt's and the generated ones."""
    seconds: QuantileSketch = field(default_factory=QuantileSketch)
    """How long an answered request was in flight."""
    seconds_per_token: QuantileSketch = field(default_factory=QuantileSketch)
    """The same, divided by its generated tokens."""
    prompt_tokens: int = 0
    """Of answered requests."""

    def add(self, request: RequestRecord) -> None:
        """Take in a request."""
        if request.cancelled is not None:
            self.kinds["cancelled"] += 1
            return
        self.kinds[request.kind] += 1
        self.prompt_tokens += request.prompt_tokens
        self.scheduled_tokens.add(request.prompt_tokens + (request.tokens or 0))
        self.seconds.add(request.seconds)
        if request.tokens:
            self.seconds_per_token.add(request.seconds / request.tokens)


class Measures:
    """What a run's events add up to, over all of its sessions laid end to end."""

    def __init__(self) -> None:
        self.run = RunState()
        self.use = Utilization(self.run)
        self.in_flight = InFlight()
        self.calibration = Calibration()
        self.requests: dict[Engine, EngineRequests] = {
            engine: EngineRequests() for engine in ENGINES
        }
        self.problems: dict[str, ProblemMeasures] = {}
        """Those that are solved, in the order in which they were."""
        self.resources = UsedResources()

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> Self:
        """The measures of a whole log."""
        measures = cls()
        for event in events:
            measures.add(event)
        measures.use.finish()
        return measures

    def add(self, event: AnyEvent) -> None:
        """Take in the next event."""
        request, problem = self.use.add(event)
        if request:
            self.requests[request.engine].add(request)
            self.in_flight.add(request)
        elif problem and problem.solution:
            self.calibration.add(problem.solution)
            self.problems[problem.id] = problem_measures(problem, problem.solution)
        elif isinstance(event, Session):
            self.resources.new_session()
        elif isinstance(event, Resources):
            self.resources.add(event)

    @property
    def wall_s(self) -> float:
        """Seconds of searching, all sessions together."""
        return self.run.wall_s

    @property
    def generated_tokens(self) -> int:
        """Tokens of all answers of the generator."""
        return self.run.work.generated_tokens

    @property
    def useful_tokens(self) -> int:
        """On the paths of completions, each node once."""
        return sum(problem.tree.useful_tokens for problem in self.problems.values())

    @property
    def goodput(self) -> float | None:
        """Precise goodput (FastTTS): mean tokens of a completion over its mean time, in tokens/s.

        Both over all completions of problems that one session has solved; None without any.
        """
        trees = [p.tree for p in self.problems.values() if p.tree.completion_s is not None]
        seconds = sum(tree.completion_s or 0.0 for tree in trees)
        return sum(tree.completion_tokens for tree in trees) / seconds if seconds else None

    def batch_utilization(self, engine: Engine) -> float | None:
        """Mean load in flight over what may be; None where the log does not hold the limit."""
        load = self.in_flight.mean(engine, self.wall_s)
        if self.run.limits is None or load is None:
            return None
        return load / self.run.limits[ENGINES.index(engine)]

    def judged(self) -> list[ProblemMeasures]:
        """The solved problems that have a reference."""
        return [problem for problem in self.problems.values() if problem.correct is not None]

    def right_units(self, n: int, unit: int) -> Counter[tuple[int, int]]:
        """Judged problems by (independent parts, those of them that hold a right completion).

        Of runs of `n` completions a problem whose parts give `unit` each (`independence`).
        """
        return Counter(
            (n // unit, len({root // unit for root in problem.right_roots}))
            for problem in self.judged()
        )


def problem_measures(problem: ProblemState, solved: ProblemSolved) -> ProblemMeasures:
    """The measures of a problem and of its solution."""
    return ProblemMeasures(
        id=problem.id,
        question=_hashed(problem.asked) if problem.asked else None,
        level=solved.level,
        answers=solved.answers,
        correct=solved.correct,
        any_correct=solved.any_correct,
        right_roots=_right_roots(solved),
        tokens=problem.work.generated_tokens,
        verifier_tokens=problem.work.verifier_tokens,
        seconds=problem.seconds,
        tree=tree_measures(problem),
        limit=solved.limit,
    )


def _right_roots(event: ProblemSolved) -> tuple[int, ...]:
    right = {place for place, group in enumerate(event.groups or ()) if group.correct}
    return tuple(sorted({done.node[0] for done in event.completions if done.group in right}))


def _hashed(asked: ProblemStarted) -> str:
    said = [part for turn in asked.history for part in (turn.role, turn.content)]
    text = "\0".join([*said, asked.question])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
