"""Engines that fail in every way an engine behind a network can, on the event loop's time.

What is answered comes from an endpoint inside, and depends on the request alone; when, after how
many failures, and whether a cancellation is heard, is drawn from a seed.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tts.base.errors import EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.retry import LONGEST_WAIT_S, PATIENCE_S, retried

T = TypeVar("T")

Cancelling = Literal["at once", "late", "never"]
"""When a cancelled request ends: at once, once the engine is done with it, or not at all: then the
answer comes as if nothing had been cancelled."""

SLOWEST_S = 5.0
"""Latency of one attempt at most, and the deadline of a request."""
LONGEST_RESTART_S = 4.0
RESTARTS = 2
"""Restarts of one engine in one run at most."""
FAILURES = 2
"""Failures of one request at most, restarts apart."""

# Whatever is drawn, no request fails for so long that it is given up: after the first failure, one
# more of each kind, each with its latency and the longest wait before the next attempt.
assert (
    (FAILURES - 1) * (SLOWEST_S + LONGEST_WAIT_S)
    + RESTARTS * (SLOWEST_S + LONGEST_RESTART_S + LONGEST_WAIT_S)
) < PATIENCE_S


@dataclass(frozen=True)
class Faults:
    """How one engine behaves. Shares are of the attempts; times are seconds."""

    seed: int = 0
    latency_s: float = 0.0
    """The median; 0: answers are there at once."""
    heavy: bool = False
    """Whether the latency has a heavy tail, up to SLOWEST_S; else it is up to twice the median."""
    lost: float = 0.0
    """Share that fail before any work is done."""
    late: float = 0.0
    """Share that fail when the work is done."""
    timed_out: float = 0.0
    """Share that are not answered within the deadline."""
    restarts: tuple[tuple[float, float], ...] = ()
    """From when to when nothing is answered; what is in flight then is lost, and the cache too."""
    cancelling: Cancelling = "at once"
    answers: float = math.inf
    """After how many answers the engine is gone for good."""


class FaultyEngine:
    """One engine, and what can be seen of it."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.in_flight = 0
        """Requests that somebody waits for."""
        self.asked: Counter[Hashable] = Counter()
        """Requests by key, each counted once however often it was sent again."""
        self.answered: Counter[Hashable] = Counter()
        """Those whose answer arrived where it was still wanted."""
        self.seen: Counter[str] = Counter()
        """Everything that went wrong, by kind."""
        self._rng = random.Random(faults.seed)
        self._cache: set[Hashable] = set()
        self._starts = 0

    async def ask(self, key: Hashable, answer: Callable[[], Awaitable[T]]) -> T:
        """`answer()`, after everything that goes wrong first; retried as a client would."""
        failures = 0

        async def attempt() -> T:
            nonlocal failures
            failing = self._failure() if failures < FAILURES else None
            failures += failing is not None
            return await self._attempt(key, answer, failing)

        self.asked[key] += 1
        self.in_flight += 1
        try:
            result = await retried(attempt)
        except asyncio.CancelledError:
            self.seen["cancelled"] += 1
            raise
        finally:
            self.in_flight -= 1
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling():
            self.seen["answered though cancelled"] += 1
        else:
            self.answered[key] += 1
        return result

    def _failure(self) -> str | None:
        """What goes wrong with an attempt, by itself."""
        faults, drawn = self.faults, self._rng.random()
        for kind in ("lost", "late", "timed_out"):
            drawn -= getattr(faults, kind)
            if drawn < 0:
                return kind
        return None

    async def _attempt(
        self, key: Hashable, answer: Callable[[], Awaitable[T]], failing: str | None
    ) -> T:
        now = asyncio.get_running_loop().time()
        if self.answered.total() >= self.faults.answers:
            raise self._unavailable("gone")
        if any(start <= now < end for start, end in self.faults.restarts):
            raise self._unavailable("down")
        if failing == "lost":
            raise self._unavailable(failing)
        latency = SLOWEST_S if failing == "timed_out" else self._latency(key, now)
        crash = min((s for s, _ in self.faults.restarts if s > now), default=math.inf)
        await self._pass(min(latency, crash - now))
        if crash <= now + latency:
            raise self._unavailable("crashed")
        if self.answered.total() >= self.faults.answers:
            raise self._unavailable("gone")
        if failing == "timed_out":
            self.seen[failing] += 1
            raise EndpointTimeout("no answer in time")
        result = await answer()
        if failing == "late":
            raise self._unavailable(failing)
        return result

    def _unavailable(self, kind: str) -> EndpointUnavailable:
        self.seen[kind] += 1
        return EndpointUnavailable(f"the engine is {kind}")

    def _latency(self, key: Hashable, now: float) -> float:
        starts = sum(start <= now for start, _ in self.faults.restarts)
        if starts != self._starts:
            self._starts = starts
            self._cache.clear()
        if not self.faults.latency_s:
            return 0.0
        if self.faults.heavy:
            factor = self._rng.paretovariate(0.7) / 2 ** (1 / 0.7)  # the median is 1
        else:
            factor = self._rng.uniform(0, 2)
        if key in self._cache:
            factor /= 10
        self._cache.add(key)
        return min(self.faults.latency_s * factor, SLOWEST_S)

    async def _pass(self, seconds: float) -> None:
        """Wait; a cancellation is heard as `cancelling` says."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if self.faults.cancelling == "at once":
                raise
            await asyncio.sleep(end - now())
            if self.faults.cancelling == "late":
                raise


@dataclass
class FaultyGenerator:
    """`inner` on such an engine; see endpoints.Generator."""

    inner: Any
    engine: FaultyEngine

    async def generate(self, call):
        if call.max_new_tokens < 1:
            raise RequestRefused("nothing is asked for")
        key = call.input_ids.tobytes(), call.seed
        return await self.engine.ask(key, lambda: self.inner.generate(call))


@dataclass
class FaultyVerifier:
    """`inner` on such an engine; see endpoints.Verifier."""

    inner: Any
    engine: FaultyEngine

    async def score(self, call):
        return await self.engine.ask(call.input_ids.tobytes(), lambda: self.inner.score(call))
