"""From a run's events to its requests, one at a time: no list of them is kept."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from tts.build.spec import Role

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
