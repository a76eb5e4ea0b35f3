"""From a run's events to its requests, one at a time, and the outcome of those sent ahead.

No list of requests is kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tts.build.spec import Role
from tts.search import NodePath

from .events import AnyEvent, Cancelled, Event, Prefetched, StepGenerated, StepScored
from .records import EngineRequest, RequestKind
from .state import end_to_end

WINDOW = 8192
"""Requests among which order of sending is restored; more than are ever in flight at a time."""


def requests_of(events: Iterable[AnyEvent]) -> Iterator[EngineRequest]:
    """A run's requests in the order in which they ended."""
    for began, event in end_to_end(events):
        if request := request_of(event, began):
            yield request


def request_of(event: Event, began: float) -> EngineRequest | None:
    """The request that an event is the end of, if it is one; `began`: its session's begin."""
    engine: Role
    kind: RequestKind
    tokens: int | None
    match event:
        case StepGenerated():
            engine, kind, tokens = "generator", event.kind, event.tokens
        case Prefetched():
            engine, kind, tokens = event.engine, "prefetch", 0
        case StepScored(cached=False):
            engine, kind, tokens = "verifier", event.kind or "main", event.tokens
        case Cancelled():
            engine = "verifier" if event.work == "score" else "generator"
            kind, tokens = "prefetch" if event.work == "prefetch" else event.kind, None
        case _:
            return None
    return EngineRequest(
        engine,
        kind,
        event.problem,
        event.node,
        began + event.sent,
        began + event.done,
        event.prompt_tokens,
        tokens,
        event.in_flight,
        event.why if isinstance(event, Cancelled) else None,
    )


class InOrderOfSending:
    """Requests that come in as they ended go out as they were sent, WINDOW of them later.

    The order is exact unless a request was in flight while WINDOW others that were sent after it
    ended. Among generator requests sent at the same time, cancelled ones go first.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._count = 0
        self._waiting: list[tuple[float, bool, int, EngineRequest]] = []

    def add(self, request: EngineRequest) -> EngineRequest | None:
        """Take in a request; the one that is next, once there are enough to tell."""
        self._count += 1
        later = request.engine == "generator" and request.cancelled is None
        entry = (request.sent, later, self._count, request)
        if len(self._waiting) < self._window:
            heapq.heappush(self._waiting, entry)
            return None
        return heapq.heappushpop(self._waiting, entry)[-1]

    def rest(self) -> Iterator[EngineRequest]:
        """The requests that still wait, when no more come in."""
        return (entry[-1] for entry in sorted(self._waiting))


@dataclass(slots=True)
class _Ahead:
    """Speculative expansions of a problem whose search goes on."""

    answered: Counter[NodePath] = field(default_factory=Counter)
    """Tokens, by node."""
    sent: set[NodePath] = field(default_factory=set)
    used: set[NodePath] = field(default_factory=set)
    """What the search asked for: perhaps before the answer came."""


class SpeculationOutcome:
    """The outcome of expansions that were sent before their search asked for them.

    One sent twice, after a cancellation, counts twice. Once a problem is solved, its nodes are
    forgotten: nothing more of it is used.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.cancelled: Counter[str] = Counter()
        """Cancelled expansions by reason, also used ones whose search ended first."""
        self._used = 0
        self._unused_tokens = 0
        self._open: dict[str, _Ahead] = {}

    def add(self, request: EngineRequest) -> None:
        """Take in a speculative request."""
        nodes = self._open.setdefault(request.problem, _Ahead())
        nodes.sent.add(request.node)
        self.sent += 1
        if request.cancelled is not None:
            self.cancelled[request.cancelled] += 1
        else:
            self.answered += 1
            nodes.answered[request.node] += request.tokens or 0

    def use(self, problem: str, node: NodePath) -> None:
        """Its search has asked for a node that had been sent ahead."""
        self._open.setdefault(problem, _Ahead()).used.add(node)

    def solved(self, problem: str) -> int:
        """Settle a problem's nodes; the tokens of its answers that its search did not ask for.

        A used expansion that has not ended yet is still awaited.
        """
        nodes = self._open.pop(problem, _Ahead())
        unused = _unused(nodes)
        self._used += len(nodes.sent & nodes.used)
        self._unused_tokens += unused
        if awaited := nodes.used - nodes.sent:
            self._open[problem] = _Ahead(used=awaited)
        return unused

    @property
    def used(self) -> int:
        """How many their search asked for in the end; the others were not needed."""
        return self._used + sum(len(nodes.sent & nodes.used) for nodes in self._open.values())

    @property
    def unused_tokens(self) -> int:
        """Tokens of answers that no search asked for."""
        return self._unused_tokens + sum(map(_unused, self._open.values()))

    @property
    def hit_rate(self) -> float | None:
        """Used over sent; None without any."""
        return self.used / self.sent if self.sent else None


def _unused(nodes: _Ahead) -> int:
    return sum(tokens for node, tokens in nodes.answered.items() if node not in nodes.used)
