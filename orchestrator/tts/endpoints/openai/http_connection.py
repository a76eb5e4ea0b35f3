"""HTTP/1.1 as a client speaks it: a connection that has one request at a time.

send() ─► head(): status, headers ─► part(), part(), ... b"" ─► reusable: send(), or close()

A general client takes several times as much time for a request, of which a thought has two.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from ..silence import Silence

_MOST_UNREAD = 1 << 20
"""Bytes of an answer that wait to be read; then the server has to wait."""


class ConnectionBroken(Exception):
    """The connection ended in the middle of an answer, or what came is no answer."""


class HttpConnection(asyncio.Protocol):
    """A connection to a server, used by one task at a time."""

    def __init__(self, silence: Silence) -> None:
        """`silence` of the server is broken by whatever comes, and limits every wait."""
        self.status = 0
        """That of the answer; 0 until its head has come."""
        self.headers: dict[str, str] = {}
        """Those of the answer, by their names in lower case."""
        self.is_open = False
        self._silence = silence
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._in_body = self._complete = self._goes_on = self._paused = False
        self._woken: asyncio.Future[None] | None = None

    def send(self, request: bytes) -> None:
        """Begin with the next request; the answer to the last one was read to its end."""
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers = 0, {}
        self._in_body = self._complete = False
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers; raises ConnectionBroken."""
        while not self._in_body:
            await self._more()

    async def part(self) -> bytes:
        """The next part of the answer's body; empty at its end. Raises ConnectionBroken."""
        while not self._body and not self._complete:
            await self._more()
        part = bytes(self._body)
        self._body.clear()
        if self._paused and self.is_open:
            self._paused = False
            self._transport.resume_reading()
        return part

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the answer has ended, and the server goes on."""
        return self.is_open and self._complete and self._goes_on and not self._body

    def close(self) -> None:
        """Close it at once, which ends the request on the server."""
        self._transport.abort()

    async def _more(self) -> None:
        if not self.is_open:
            raise ConnectionBroken
        self._woken = asyncio.get_running_loop().create_future()
        async with self._silence.limited():
            await self._woken

    def _wake(self) -> None:
        if self._woken and not self._woken.done():
            self._woken.set_result(None)

    # What follows is called by the event loop, and by the parser.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no class of asyncio
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._silence.broken()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # it is no answer
            self.is_open = False
            self.close()
        if len(self._body) > _MOST_UNREAD and self.is_open and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.is_open = False
        lengths = ("content-length", "transfer-encoding")
        if self._in_body and error is None and not any(name in self.headers for name in lengths):
            self._complete = True  # its end is that of the connection
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """See httptools."""
        self.status, self._in_body = self._parser.get_status_code(), True
        self._goes_on = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """See httptools."""
        self._body += data

    def on_message_complete(self) -> None:
        """See httptools."""
        self._complete = True
