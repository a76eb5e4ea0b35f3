"""Results on their way from the searches to the program."""

from __future__ import annotations

import asyncio

from .result import Result

UNREAD = 256
"""Results that wait to be taken; while there are more, no further problem is begun."""


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
