"""The connection of an engine's process whose engine is an `LLM`, all in one event loop.

What was answered in one turn of the loop goes out in one report.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import cast

from ..engine_messages import Commands, EngineReport, Messages, ToEngine, encode
from ..responses import Response
from .host import LlmHost


class LlmConnection(asyncio.Protocol):
    """The engine's end of the connection, until it ends."""

    def __init__(self, host: LlmHost) -> None:
        self._messages = Messages(ToEngine)
        self._commands = Commands(host, self._answer)
        self._responses: list[tuple[int, Response]] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for command in self._commands.of(self._messages.feed(data)):
            command()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol: nobody is left who wants to know."""
        self.end()

    def end(self) -> None:
        """Let `serve` end."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _answer(self, ticket: int, response: Response) -> None:
        if not self._responses:
            self._loop.call_soon(self._send)
        self._responses.append((ticket, response))

    def _send(self) -> None:
        self._transport.write(encode(EngineReport(self._responses, [])))
        self._responses = []


async def serve(host: LlmHost, connection: socket.socket) -> None:
    """Serve a connection until it ends, or a signal asks for the end; then shut the `LLM` down.

    Raises EngineError if the engine has died.
    """
    loop = asyncio.get_running_loop()
    ours = LlmConnection(host)
    loop.add_signal_handler(signal.SIGTERM, ours.end)
    await loop.create_unix_connection(lambda: ours, sock=connection)
    await host.run(ours.ended)
