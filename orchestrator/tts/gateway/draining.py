"""How a gateway ends in order: it takes nothing new, and what runs goes on to its end for a while.

serving ──SIGTERM──► draining ──nothing runs, or the grace period is over──► ending
   └──────────────────────Ctrl-C, or SIGTERM once more──────────────────────────▲
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tts.base.errors import Terminated

from .observability.record import ServedRequest
from .openai.errors import ApiError

GRACE_S = 30.0
"""How long requests may go on after SIGTERM; Kubernetes gives a pod as long before it kills it."""
_RETRY = {"retry-after": "1"}
"""When a refused client may come back: by then a balancer sends it to another gateway."""
DRAINING = "gateway_draining"
SETTLE_S = 5.0
"""For the answers of searches that were ended, at most."""


class Drain:
    """The requests that run, and whether more are taken."""

    def __init__(self, grace_s: float = GRACE_S, say: Callable[[str], None] = lambda _: None):
        """`grace_s`: how long they may go on after `begin`; `say` gets a line per stage."""
        self.over = False
        """Whether requests that still run are cancelled."""
        self._grace_s = grace_s
        self._say = say
        self._open = False
        self._began = asyncio.Event()
        self._running: dict[asyncio.Task[Any], ServedRequest] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def began(self) -> bool:
        """Whether nothing new is taken."""
        return self._began.is_set()

    def open(self) -> None:
        """Requests are served from now on, so there is something to drain."""
        self._open = True

    def begin(self) -> bool:
        """Take nothing new; False if that is so already, or nothing is served yet."""
        if self.began or not self._open:
            return False
        self._began.set()
        return True

    @contextmanager
    def running(self, record: ServedRequest) -> Iterator[None]:
        """Count a request that runs in this task for as long as the block lasts."""
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = record
        self._idle.clear()
        try:
            yield
        finally:
            del self._running[task]
            if not self._running:
                self._idle.set()

    async def drained(self) -> None:
        """Wait until nothing runs after `begin`; Terminated if the grace period ends before."""
        await self._began.wait()
        count, grace = len(self._running), f"{self._grace_s:g} s"
        self._say(f"Draining: {_requests(count)} left" + f", for at most {grace}" * bool(count))
        await self._idle_within(self._grace_s)
        if count := len(self._running):
            raise Terminated(f"Stopped by SIGTERM: {_requests(count)} had not ended after {grace}.")
        self._say("Drained: no request is left; the gateway ends")

    async def end(self, *stop_searches: Callable[[], None]) -> None:
        """End what still runs: searches with what they have, all others with an error."""
        self._began.set()
        self.over = True
        for stop in stop_searches:
            stop()
        for task, record in self._running.items():
            if record.strategy is None:
                task.cancel()
        await self._idle_within(SETTLE_S)
        for task in self._running:
            task.cancel()
        await self._idle_within(SETTLE_S)

    async def _idle_within(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(self._idle.wait())
        await asyncio.wait({waiting}, timeout=seconds)
        waiting.cancel()


def refused() -> ApiError:
    """The answer to a new request while a gateway drains."""
    message = "This gateway is being stopped and takes nothing new; send the request again."
    return ApiError(503, message, code=DRAINING, headers=_RETRY)


def cut_off() -> ApiError:
    """The answer to a request that has not ended in time."""
    message = "This gateway was stopped before the answer was complete."
    return ApiError(503, message, code="gateway_stopped", headers=_RETRY)


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"
