"""HTTP/1.1 in the event loop: uvicorn's server, with limits on what a client may do to it.

A request that comes in one piece is parsed, with its body, before its handler begins, and what is
sent goes to the socket at the end of the same turn of the loop: nothing is handed from thread to
thread.
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

from tts.base.errors import ServerError

from .exchange import ON_LEAVE

BACKLOG = 1024
HEADERS_TIMEOUT_S = 10
"""Until the headers must be complete, counted from the connection's start or its last response."""
MAX_HEADERS = 64 << 10
SEND_BUFFER = 64 << 10
"""Bytes that the system holds for a client. It tells that the client has taken some when a third is
free; of the megabytes that it would hold otherwise that takes a slow reader minutes."""
UNREAD_TIMEOUT_S = 30
"""How long a client may take nothing of what is there for it."""
LINGER_S = 10
"""How long the rest of a refused request is read, and not looked at. To close a connection with
bytes unread resets it, and its client may then never see the answer."""


class HttpServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to the program around it."""

    def __init__(self, app: Any, tls: tuple[Path, Path] | None, max_connections: int) -> None:
        """`tls` is a certificate and its key; more than `max_connections` at a time are closed.

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
                limit_concurrency=max_connections + 1,  # the protocol acts before this would
                timeout_keep_alive=HEADERS_TIMEOUT_S,
                timeout_graceful_shutdown=1,
                backlog=BACKLOG,
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=str(tls[1]) if tls else None,
            )
        )
        self.listening = asyncio.Event()

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


class _Cork:
    """A transport to which what is written in one turn of the loop goes in one piece.

    To send a piece costs as much as to make one of a token: events that come together go together,
    and the head of a response with the first of them.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._pieces, self._size = list[bytes](), 0
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this with what else is written in this turn, but not more than `SEND_BUFFER`."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= SEND_BUFFER:  # so that the transport can hold its writer up
            self._flush()

    def close(self) -> None:
        """Close it once all is sent."""
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        """Send the end behind all that was written."""
        self._flush()
        self._transport.write_eof()

    def _flush(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self.is_closing():
            self._transport.write(b"".join(pieces))


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when headers are too long or late, or nothing sent is taken."""

    _alarm: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _lingers = False
    """Whether all has been sent, and what still comes is not looked at."""
    _header_bytes = 0
    """Bytes of the headers that come now, or are to come."""
    _in_headers = True
    _completed = False
    """Whether a request was complete in the bytes that are parsed: what follows it has few."""
    _answered: RequestResponseCycle | None = None
    """The request whose answer is sent; `cycle` is the last one, which may have to wait."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a client that has connected its time for headers, or refuse it."""
        super().connection_made(_Cork(transport, self.loop))  # type: ignore[arg-type]
        if len(self.connections) >= (self.limit_concurrency or 0):
            transport.abort()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all that the client has asked for: it is gone."""
        self._cancel_alarm()
        self._cancel_unread()
        self._end_requests()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes that have come."""
        if self._lingers:
            return
        before, self._completed = self._in_headers, False
        super().data_received(data)
        if before and self._in_headers and not self._completed:
            self._header_bytes += len(data)
            refused = self._lingers or self.transport.is_closing()
            if self._header_bytes > MAX_HEADERS and not refused:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Count the headers of a request that begins."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        self._completed = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Answer a request, unless its headers are too long or name no host, or two."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEADERS:
            self._header_bytes = size
            raise ValueError("too long")  # the parser stops, and 400 is sent, as below
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            raise ValueError("RFC 9112, 3.2")
        self._in_headers, self._header_bytes = False, 0
        self._cancel_alarm()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, if it has not come."""
        if self._lingers and not self.transport.is_closing():
            self._linger()
            return
        waits = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif waits:
            self._await_headers()

    def pause_writing(self) -> None:
        """Watch a client that takes less than there is for it."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Go on: the client has taken nearly all."""
        self._cancel_unread()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request, or one with long headers; close the connection."""
        if self._end_requests():  # nothing may stand in the middle of their answers
            self._close()
            return
        too_large = self._header_bytes > MAX_HEADERS
        status = b"431 Request Header Fields Too Large" if too_large else b"400 Bad Request"
        answer = b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(answer % status)
        self._linger()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered, transport = cycle, self.transport

        async def send(message: Any) -> None:
            if transport.is_closing():  # uvloop takes nothing more, and tells of the end later
                cycle.disconnected = True
                return
            last = message["type"] == "http.response.body" and not message.get("more_body")
            if last and cycle.more_body and not cycle.keep_alive:
                self._lingers = cycle.keep_alive = True  # else uvicorn closes at once
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
        if on_leave := cycle.scope["state"].pop(ON_LEAVE, None):
            on_leave()
        return True

    def _await_headers(self) -> None:
        self._cancel_alarm()
        self._alarm = self.loop.call_later(HEADERS_TIMEOUT_S, self._close)

    def _cancel_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()

    def _linger(self) -> None:
        """Let the client see the answer to a request that has not come to its end."""
        self._lingers = True
        self.pipeline.clear()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._cancel_alarm()
        self._alarm = self.loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        self.transport.close()
        self._await_reader()

    def _await_reader(self) -> None:
        """Abort the connection when its client has taken nothing for `UNREAD_TIMEOUT_S`.

        Nothing more is sent until it has, so what is there for it can only become less.
        """
        self._cancel_unread()
        there = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(UNREAD_TIMEOUT_S, self._look_at_reader, there)

    def _look_at_reader(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._await_reader()
        else:
            self.transport.abort()

    def _cancel_unread(self) -> None:
        if self._unread:
            self._unread.cancel()
