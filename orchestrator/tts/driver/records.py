"""What a driver takes, submissions, and what it reports: requests, idle engines.

Every request is reported when it has ended. Times are those of the driver's clock, in seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from tts.build.spec import ROLES, Role
from tts.problem import Problem
from tts.scheduling import Prefetch, WorkKind
from tts.search import (
    Expand,
    Generated,
    NodePath,
    ResumedWork,
    Score,
    Scored,
    Search,
    SearchResult,
    Thought,
)

JobAnswer = tuple[Thought, ...] | Scored | None
"""The result of a request: thoughts, a score, or nothing for a prefetch."""

CancelReason = Literal["ended", "pruned", "slot"]
"""The reason: its search has ended, wants it no longer, or its slot was needed for certain work."""


@dataclass(frozen=True, slots=True)
class Started:
    """A queued problem became a running one."""

    at: float
    problem: Problem


@dataclass(slots=True)
class EndedRequest:
    """A request that an engine has answered, or that was cancelled; made when it is sent."""

    problem: str
    work: Expand | Score | Prefetch
    kind: WorkKind
    """The kind of work that it was sent as."""
    prompt_tokens: int
    in_flight: tuple[int, int]
    """Requests on the generator and the verifier when it was sent, itself included."""
    sent_at: float
    ended_at: float = 0.0
    answer: JobAnswer = None
    tokens: int = 0
    """Tokens that its engine generated; of one that was cancelled, as far as the engine says."""
    no_verdict: int = 0
    """The verifier's critiques without a verdict."""
    critique: str = ""
    """What the verifier wrote, the first of several critiques."""
    cancelled: CancelReason | None = None
    reused: int = 0
    """Tokens of a score's prompt that one of the same problem before it began with."""


@dataclass(frozen=True, slots=True)
class SharedScore:
    """A node got a score without a request of its own."""

    at: float
    problem: str
    node: NodePath
    score: float


@dataclass(frozen=True, slots=True)
class UsedGuess:
    """A search asked for an expansion that had been sent ahead."""

    at: float
    problem: str
    node: NodePath


@dataclass(frozen=True, slots=True)
class IdleEngine:
    """Nothing was in flight on an engine."""

    engine: Role
    since: float
    until: float
    why: str


Record = Started | EndedRequest | SharedScore | UsedGuess | IdleEngine
TakeRecord = Callable[[Record], None]
"""Takes each record as it comes; it must not raise."""


@dataclass(eq=False)
class Submission:
    """Await it for the problem's result; cancelling the wait cancels the search.

    `number` is unique within its driver; older problems have smaller ones.

    Raises the TtsError that ended the search, DeadlineExceeded, or CancelledError.
    """

    number: int
    problem: Problem
    new_search: Callable[[], Search]
    priority: int
    resumed: ResumedWork
    on_result: Callable[[Generated | Scored], None] | None
    outcome: asyncio.Future[SearchResult]
    search: Search | None = field(default=None, init=False)
    """The search; None until the problem is started."""

    def __await__(self) -> Generator[Any, None, SearchResult]:
        return self.outcome.__await__()

    @property
    def done(self) -> bool:
        """Whether the search has ended: solved, failed or cancelled."""
        return self.outcome.done()

    def cancel(self) -> None:
        """End the search; its requests in flight are cancelled on the engines."""
        self.outcome.cancel()


class IdleWatch:
    """Reports every period in which nothing was in flight on an engine."""

    def __init__(self, record: TakeRecord) -> None:
        """`record` takes an `IdleEngine` when a stretch ends, or its reason changes."""
        self._record = record
        self._idle: dict[Role, tuple[float, str]] = {}

    def update(self, now: float, in_flight: tuple[int, int], pending: tuple[int, int]) -> None:
        """Take in what is in flight and pending on both engines as of `now`, generator first."""
        for place, engine in enumerate(ROLES):
            why = None
            if not in_flight[place]:
                why = _reason(pending[place], in_flight[1 - place])
            if engine in self._idle and self._idle[engine][1] != why:
                self._report(engine, now)
            if why:
                self._idle.setdefault(engine, (now, why))

    def end(self, now: float) -> None:
        """Report the stretches that last until the end of the run."""
        for engine in list(self._idle):
            self._report(engine, now)

    def _report(self, engine: Role, now: float) -> None:
        since, why = self._idle.pop(engine)
        if since < now:
            self._record(IdleEngine(engine, since, now, why))


class MeanLoad:
    """Requests in flight on an engine, averaged over any period."""

    def __init__(self) -> None:
        self._now = 0.0
        self._in_flight = 0
        self._sum = 0.0

    def update(self, now: float, in_flight: int) -> float:
        """Take in how many are in flight as of `now`; returns request-seconds so far."""
        self._sum += self._in_flight * (now - self._now)
        self._now, self._in_flight = now, in_flight
        return self._sum


def _reason(pending: int, others: int) -> str:
    """Why an engine idles; `others`: requests in flight on the other engine."""
    if pending:
        return "budget"
    return "dependency" if others else "no work"
