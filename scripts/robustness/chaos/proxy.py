"""A TCP proxy in front of a server's Unix domain socket: a network that can fail."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 2**16
_TRAFFIC_S = 1.0
"""How long to wait for a message to cut; connections without one are then closed as they are."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST, see socket(7)


class Proxy:
    """Passes connections to a port of loopback on to a socket, in a thread of its own.

    What can go wrong is a coroutine for `do`, which waits for its end.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._links: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay_s = 0.0
        self._cut: float | None = None
        self._reset = self._away = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server = self.do(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the proxy's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def cut(self, share: float, *, reset: bool, away_s: float) -> None:
        """End all connections, in the middle of their next messages; new ones after `away_s`.

        `share` is how much of a message is still passed on, 0 to 1. `reset`: by RST, not FIN.
        """
        self._cut, self._reset, self._away = share, reset, True
        if self._links:
            await asyncio.wait(self._links, timeout=_TRAFFIC_S)
        await self._cancel_links()
        self._cut = None
        await asyncio.sleep(away_s)
        self._away = self._reset = False

    async def hold(self, seconds: float) -> None:
        """Pass nothing on for some seconds."""
        self._flowing.clear()
        await asyncio.sleep(seconds)
        self._flowing.set()

    async def delay(self, each_s: float, seconds: float) -> None:
        """Pass everything on `each_s` later, for some seconds."""
        self._delay_s = each_s
        await asyncio.sleep(seconds)
        self._delay_s = 0.0

    def close(self) -> None:
        """End all connections and the thread."""
        self._server.close()
        self.do(self._cancel_links())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_links(self) -> None:
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            writer.transport.abort()
            return
        link = asyncio.ensure_future(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        await asyncio.wait({link})

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it or a fault does."""
        try:
            there = await asyncio.open_unix_connection(self._target)
        except OSError:  # no server: refused, as far as a proxy can
            writer.transport.abort()
            return
        ways = ((reader, there[1]), (there[0], writer))
        pumps = {asyncio.ensure_future(self._pump(*way)) for way in ways}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            if self._reset:
                client = writer.get_extra_info("socket")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            writer.close()
            there[1].close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the other side ended it
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                await asyncio.sleep(self._delay_s)
                cut = self._cut
                writer.write(data if cut is None else data[: int(cut * len(data))])
                await writer.drain()
                if cut is not None:
                    return
