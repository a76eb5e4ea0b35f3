"""Results that wait between the searches and the program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from .result import Result

UNREAD = 256
"""The limit of waiting results; above it, no further problem is started."""


class Outbox:
    """A queue that slows its producer down: a result holds a whole tree."""

    def __init__(self) -> None:
        self._results: asyncio.Queue[Result | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, result: Result) -> None:
        """Hand a result over."""
        self._results.put_nowait(result)
        if self._results.qsize() >= UNREAD:
            self._room.clear()

    def close(self) -> None:
        """No more results come."""
        self._results.put_nowait(None)

    async def get(self) -> Result | None:
        """The oldest result, when it is there; None after the last."""
        result = await self._results.get()
        if self._results.qsize() < UNREAD:
            self._room.set()
        return result

    async def room(self) -> None:
        """Wait until the program has taken enough of the results."""
        await self._room.wait()


async def streamed(
    start: Callable[[Outbox], Coroutine[Any, Any, None]],
) -> AsyncGenerator[Result, None]:
    """Yield results as they are handed over; leaving early cancels the rest and waits for it."""
    outbox = Outbox()
    work = asyncio.ensure_future(start(outbox))
    work.add_done_callback(lambda _: outbox.close())
    try:
        while (result := await outbox.get()) is not None:
            yield result
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # seen: it has been raised above, or nobody waits for it
