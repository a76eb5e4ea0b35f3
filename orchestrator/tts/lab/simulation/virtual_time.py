"""An event loop that never sleeps: when nothing is ready, its clock jumps to the next timer.

Code that awaits timers and other tasks runs on it unchanged, as fast as the processor can, and
always in the same order. Nothing may wait for the world outside: files, sockets, threads.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import Runner
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time, which begins at 0."""
    with Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is virtual seconds since it was made."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        """See AbstractEventLoop."""
        return self._jumps.now


class _Jumps(selectors.SelectSelector):
    """Asked to wait for input or a timeout, it lets the time pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no timer is set and no task is ready")
        self.now += max(0.0, timeout)
        return []
