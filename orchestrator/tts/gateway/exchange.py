"""One HTTP request and its response, over ASGI.

A client that goes away cancels the task that works for it: `disconnected` tells that apart from the
gateway's own end. The HTTP server says so by `ON_LEAVE` in the scope's state: a task that waits for
ASGI's message costs more, and its cancellation leaves all of the request to the garbage collector.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from asyncio import timeout
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from .observability.record import ServedRequest
from .openai.errors import ApiError, bad_request
from .safety.keys import ApiKey
from .safety.limits import Admitted

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Request ids that a client may choose."""
_UNPRINTABLE = re.compile("[^ -~]")
ON_LEAVE = "tts.on_leave"
"""What the HTTP server calls when the client goes away, in the state of a request's scope."""
BODY_TIMEOUT_S = 30.0
"""How long a body may take to come, once the headers are there."""


class Exchange:
    """A request, and what is sent in answer to it."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Receive,
        send: Send,
        record: ServedRequest,
        prefix: str,
    ) -> None:
        """`record` is kept up to date: its stages, and the status.

        Its id is the client's `x-request-id`, or begins with `prefix`; the response says which.
        """
        self.record = record
        self.key: ApiKey | None = None
        self.admission: Admitted | None = None
        """The charge to its key; ended with the request."""
        self.broken_off: Callable[[ApiError], bytes] = ApiError.event
        """The events of an error that ends a stream."""
        self.client: str = (scope.get("client") or ("",))[0]
        """The address that the request came from: a proxy's, behind one."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.disconnected = False
        self.extra_headers: list[tuple[bytes, bytes]] = []
        self._raw_headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
        self._query: bytes = scope.get("query_string", b"")
        self._receive = receive
        self._send = send
        self._state: dict[str, Any] = scope["state"]
        chosen_id = self.header(b"x-request-id") or ""
        record.id = chosen_id if _REQUEST_ID.fullmatch(chosen_id) else prefix + record.id
        self.add_header("x-request-id", record.id)

    def header(self, name: bytes) -> str | None:
        """A header of the request; `name` is lower case."""
        for key, value in self._raw_headers:
            if key == name:
                return value.decode("latin-1")
        return None

    @property
    def query(self) -> dict[str, str]:
        """The parameters behind the path."""
        return dict(parse_qsl(self._query.decode("latin-1")))

    @property
    def host(self) -> str:
        """The name and port by which the client has called the gateway."""
        return self.header(b"host") or ""

    async def body(self, max_bytes: int) -> bytes:
        """The whole body; then a client that goes away is noticed. Raises ApiError."""
        announced = self.header(b"content-length") or ""
        length = int(announced) if announced.isdecimal() else None
        if length is not None and length > max_bytes:
            raise _too_large(max_bytes)
        parts: list[bytes] = []
        size = 0
        try:
            async with timeout(BODY_TIMEOUT_S):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        # it may have closed its half only, and is told
                        raise bad_request("The request ended before its body was complete.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > max_bytes:
                        raise _too_large(max_bytes)
                    if size == length or not message.get("more_body"):
                        break
        except TimeoutError:
            raise ApiError(
                408, f"The body of the request did not come within {BODY_TIMEOUT_S:.0f} s."
            ) from None
        self._state[ON_LEAVE] = partial(self._give_up, asyncio.current_task())
        return b"".join(parts).removeprefix(codecs.BOM_UTF8)

    def _give_up(self, work: asyncio.Task[Any] | None) -> None:
        self.disconnected = True
        if work:
            work.cancel()

    def add_header(self, name: str, value: str) -> None:
        """Another header of the response; characters that no header can hold become `?`."""
        self.extra_headers.append((name.encode(), _UNPRINTABLE.sub("?", value).encode()))

    async def respond(self, body: bytes, status: int = 200, content_type: bytes = JSON) -> None:
        """The whole response."""
        self.record.status, self.record.t5 = status, time.monotonic()
        if (own := self.record.own_latency_s()) is not None:
            self.add_header("x-tts-gateway-ms", f"{1000 * own:.3f}")
        headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *self.extra_headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send(
            {"type": "http.response.body", "body": b"" if self.method == "HEAD" else body}
        )
        self.record.t6 = time.monotonic()

    async def start_events(self) -> None:
        """Begin a response of events; called before the first one, when that is there."""
        headers = [
            (b"content-type", EVENTS),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *self.extra_headers,
        ]
        self.record.status, self.record.t5 = 200, time.monotonic()
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    def event(self, data: bytes) -> Awaitable[None]:
        """Send one event or several."""
        return self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_events(self, data: bytes) -> None:
        """Send the last event and end the response."""
        await self._send({"type": "http.response.body", "body": data})
        self.record.t6 = time.monotonic()

    def close(self) -> None:
        """The request is over, in whatever way."""
        self._state.clear()

    @property
    def streaming(self) -> bool:
        """Whether a response has begun and not ended."""
        return self.record.status != 0 and self.record.t6 is None


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, f"The body of the request has more than {max_bytes} bytes.")
