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
from .events import (
    AnyEvent,
    Generated,
    ProblemSolved,
    ProblemStarted,
    Resources,
    Scored,
    Session,
    Used,
)
from .in_flight import InFlight
from .quantiles import QuantileSketch
from .records import ENGINES, Engine, RequestRecord
from .requests import end_to_end, request_of
from .trees import TreeMeasures, Trees
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


@dataclass(slots=True)
class _Open:
    question: str | None = None
    tokens: int = 0
    verifier_tokens: int = 0


class Measures:
    """What a run's events add up to, over all of its sessions laid end to end."""

    def __init__(self) -> None:
        self.use = Utilization()
        self.in_flight = InFlight()
        self.calibration = Calibration()
        self.requests: dict[Engine, EngineRequests] = {
            engine: EngineRequests() for engine in ENGINES
        }
        self.cached_scores = 0
        """Scores that needed no request: equal steps were scored before, or were being scored."""
        self.problems: dict[str, ProblemMeasures] = {}
        """Those that are solved, in the order in which they were."""
        self.sessions = 0
        self.limits: tuple[int, int] | None = None
        """What may be in flight, as the last session says: generator requests, verifier tokens."""
        self.resources = UsedResources()
        self._trees = Trees()
        self._open: dict[str, _Open] = {}

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> Self:
        """The measures of a whole log."""
        measures = cls()
        for began, event in end_to_end(events):
            measures.add(event, began)
        measures.finish()
        return measures

    def add(self, event: AnyEvent, began: float) -> None:
        """Take in the next event, of the session that began at `began`."""
        self.use.add(event, began)
        match event:
            case Session():
                self.sessions += 1
                self.limits = event.limits or self.limits
                self.resources.new_session()
                self._trees.new_session()
            case ProblemStarted():
                self._trees.started(event.problem, began + event.t)
                if event.question:
                    self._of(event.problem).question = _hashed(event)
            case Generated():
                self._trees.generated(event, began + event.done)
                self._of(event.problem).tokens += event.tokens
            case Used():
                self._trees.used(event.problem, event.node)
            case Scored():
                self._trees.scored(event, began + event.t)
                self.cached_scores += event.cached
                self._of(event.problem).verifier_tokens += event.prompt_tokens
            case Resources():
                self.resources.add(event)
            case ProblemSolved():
                self.calibration.add(event)
                self.problems[event.problem] = self._solved(event)
        if request := request_of(event, began):
            self.requests[request.engine].add(request)
            self.in_flight.add(request)

    def finish(self) -> None:
        """There are no more events."""
        self.use.finish()

    @property
    def wall_s(self) -> float:
        """Seconds of searching, all sessions together."""
        return self.use.wall_s

    @property
    def generated_tokens(self) -> int:
        """Of all answers of the generator."""
        return self.use.generated_tokens

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

    @property
    def cache_hit_rate(self) -> float | None:
        """Share of scores that needed no request; None without scores."""
        asked = self.requests["verifier"].seconds.count
        scores = asked + self.cached_scores
        return self.cached_scores / scores if scores else None

    def batch_utilization(self, engine: Engine) -> float | None:
        """Mean load in flight over what may be; None where the log does not hold the limit."""
        load = self.in_flight.mean(engine, self.wall_s)
        if self.limits is None or load is None:
            return None
        return load / self.limits[ENGINES.index(engine)]

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

    def _of(self, problem: str) -> _Open:
        return self._open.setdefault(problem, _Open())

    def _solved(self, event: ProblemSolved) -> ProblemMeasures:
        of_problem = self._open.pop(event.problem, _Open())
        return ProblemMeasures(
            id=event.problem,
            question=of_problem.question,
            level=event.level,
            answers=event.answers,
            correct=event.correct,
            any_correct=event.any_correct,
            right_roots=_right_roots(event),
            tokens=of_problem.tokens,
            verifier_tokens=of_problem.verifier_tokens,
            seconds=self.use.latencies_s.get(event.problem),
            tree=self._trees.solved(event),
            limit=event.limit,
        )


def _right_roots(event: ProblemSolved) -> tuple[int, ...]:
    right = {place for place, group in enumerate(event.groups or ()) if group.correct}
    return tuple(sorted({done.node[0] for done in event.completions if done.group in right}))


def _hashed(asked: ProblemStarted) -> str:
    said = [part for turn in asked.history for part in (turn.role, turn.content)]
    text = "\0".join([*said, asked.question])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
