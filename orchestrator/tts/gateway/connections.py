"""HTTP/1.1 in the event loop: uvicorn's server, with limits on what a client may do to it.

A request that comes in one piece is parsed, with its body, before its handler begins, and what is
sent goes to the socket in the same turn of the loop: nothing is handed from thread to thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tts.build.errors import ServerError

BACKLOG = 1024
HEADERS_TIMEOUT_S = 10
"""Until the headers must be complete, counted from the connection's start or its last response."""
MAX_HEADERS = 64 << 10
"""Bytes of a request's first line and headers."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class HttpServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to the program around it."""

    def __init__(self, app: Any, tls: tuple[Path, Path] | None, most: int) -> None:
        """`tls` is a certificate and its key; more than `most` connections at a time are closed.

        Raises ServerError for a uvicorn that never calls what is overridden here.
        """
        if not hasattr(HttpToolsProtocol, "_start_asgi_task"):
            raise ServerError(
                f"uvicorn {uvicorn.__version__} cannot serve the gateway: it does not let it know "
                "which answer is being sent.",
                hint="pip install 'uvicorn>=0.47'",
            )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # clients' mistakes are no news
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=most + 1,  # the protocol acts before this would
                timeout_keep_alive=HEADERS_TIMEOUT_S,
                timeout_graceful_shutdown=1,
                backlog=BACKLOG,
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=str(tls[1]) if tls else None,
            )
        )
        self.listening = asyncio.Event()
        """Set once connections are accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def stop(self) -> None:
        """Close every connection; `serve` ends soon."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.close()


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when headers are too long, or do not come in time."""

    _alarm: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Of the request whose headers come now, or are to come."""
    _in_headers = True
    _answered: RequestResponseCycle | None = None
    """The request whose answer is sent; `cycle` is the last one, which may have to wait."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or 0):
            transport.abort()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._cancel_alarm()
        self._end_requests()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        before = self._in_headers
        super().data_received(data)
        if before and self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADERS and not self.transport.is_closing():
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        """A request can be answered, unless its headers are too long."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEADERS:
            self._header_bytes = size
            raise ValueError("too long")  # the parser stops, and 400 is sent, as below
        self._in_headers, self._header_bytes = False, 0
        self._cancel_alarm()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The next request may come, if it has not."""
        waits = not self.pipeline
        super().on_response_complete()
        if waits and not self.transport.is_closing():
            self._await_headers()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or one with long headers, and close the connection."""
        if self._end_requests():  # nothing may stand in the middle of their answers
            self.transport.close()
        elif self._header_bytes > MAX_HEADERS:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered, transport = cycle, self.transport

        async def send(message: Any) -> None:
            if transport.is_closing():  # uvloop takes nothing more, and tells of the end later
                cycle.disconnected = True
            else:
                await cycle.send(message)

        super()._start_asgi_task(cycle, lambda scope, receive, _: app(scope, receive, send))

    def _end_requests(self) -> bool:
        """Have requests end that are being answered; whether there was one."""
        self.pipeline.clear()
        cycle = self._answered
        if cycle is None or cycle.response_complete:
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    def _await_headers(self) -> None:
        self._cancel_alarm()
        self._alarm = self.loop.call_later(HEADERS_TIMEOUT_S, self.transport.close)

    def _cancel_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
