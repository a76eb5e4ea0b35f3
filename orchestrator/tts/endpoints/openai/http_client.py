"""Requests to a server and its answers, as JSON.

Connections are kept and shared. Giving a request up closes its connection, which ends it on the
server. No proxy is taken from the environment, no redirection is followed, since it would take the
key elsewhere, and no answer may grow without bounds.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from tts.build.errors import ConfigError, EndpointError, EndpointTimeout, EndpointUnavailable
from tts.build.spec import ANSWER_TIMEOUT_S

from ..retry import retried
from ..silence import Silence
from .errors import error_of_answer, error_of_event
from .http_connection import ConnectionBroken, HttpConnection

MOST_BYTES = 64 << 20
"""The largest answer, whole or streamed; the log-probabilities of 100,000 tokens take 8 MB."""
_MOST_EVENT_BYTES = 4 << 20
_CONNECT_S = 10.0
_KEPT_S = 4.0
"""How long a connection is kept that nothing uses: uvicorn closes them after 5 seconds."""

T = TypeVar("T")
_encode = msgspec.json.encode


class Http:
    """One server. Everything that goes wrong with a request is raised as EndpointError."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        patience_s: float,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """`url` is what stands before the paths; raises ConfigError for anything but an address."""
        self._url = _checked(url)
        self.address = self._url.geturl()
        """For people."""
        self.patience_s = patience_s
        """How long a request is sent again."""
        self._silence = Silence(f"The server at {self.address}", answer_timeout_s)
        self._key = api_key
        self._headers = [
            f"Host: {self._url.netloc}",
            "Accept: */*",
            "Accept-Encoding: identity",
            "User-Agent: tts",
            "Content-Type: application/json",
        ]
        if api_key:
            self._headers.append(f"Authorization: Bearer {api_key}")
        self._ssl = ssl.create_default_context() if self._url.scheme == "https" else None
        self._connections: set[HttpConnection] = set()
        self._idle: list[tuple[HttpConnection, float]] = []
        """Those that nothing uses, and since when."""
        self._closed = False

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of an attempt, repeated after a failure that may pass (see `retried`)."""
        return await retried(attempt, patience_s=self.patience_s)

    async def get(self, path: str) -> Any:
        """The answer of a path, None if it is not JSON."""
        try:
            async with asyncio.timeout(_CONNECT_S), self._answer("GET", path, None) as answer:
                body = await self._whole(answer, path)
        except TimeoutError:
            raise EndpointTimeout(
                f"The server at {self.address} did not answer {path} within {_CONNECT_S:g} s."
            ) from None
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            return None

    async def post(self, path: str, body: object) -> Any:
        """The whole answer to a request. Raises EndpointError; cancelling it ends the request."""
        async with self._answer("POST", path, body) as answer:
            return self._json(await self._whole(answer, path), path)

    async def events(
        self, path: str, body: object, *, closed: bool = False
    ) -> AsyncGenerator[Any, None]:
        """The events of a streamed answer; see `post`.

        `closed`: by a connection of its own, for a server that closes it at a stream's end.
        """
        async with self._answer("POST", path, body, closed=closed) as answer:
            size, rest = 0, b""
            while part := await answer.part():
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > _MOST_EVENT_BYTES:
                    raise EndpointError(
                        f"The server sent an event of more than {_MOST_EVENT_BYTES:,} bytes."
                    )
                for line in lines:
                    size += len(line) + 1
                    if size > MOST_BYTES:
                        raise EndpointError(self._too_long(path))
                    data = line.removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    if not data or not line.startswith(b"data:"):
                        continue  # what ends an event, comments, and other fields
                    event = self._json(data, path)
                    if error := error_of_event(self.address, path, event):
                        raise error
                    yield event

    async def aclose(self) -> None:
        """End what runs on it."""
        self._closed = True
        for connection in self._connections:
            connection.close()
        while any(connection.is_open for connection in self._connections):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: object,
        *,
        closed: bool = False,
    ) -> AsyncIterator[HttpConnection]:
        """The answer to a request that was taken."""
        content = b"" if body is None else _encode(body)
        line = f"{method} {self._url.path}{path} HTTP/1.1"
        head = [line, *self._headers, f"Content-Length: {len(content)}"]
        if closed:
            head.append("Connection: close")
        answer: HttpConnection | None = None
        try:
            answer = self._kept() or await self._connected()
            answer.send("\r\n".join([*head, "", ""]).encode() + content)
            await answer.head()
            if answer.status != 200:
                said = self._hidden(await self._whole(answer, path))
                raise error_of_answer(self.address, path, answer.status, said, answer.headers)
            yield answer
        except ConnectionBroken:
            what = "broke an answer off" if answer and answer.status else "closed a connection"
            raise EndpointUnavailable(f"The server at {self.address} {what}.") from None
        finally:
            if answer:
                if answer.reusable and not closed:
                    self._idle.append((answer, asyncio.get_running_loop().time()))
                else:
                    self._drop(answer)

    def _kept(self) -> HttpConnection | None:
        """A connection that was used before, the last one first; None if there is none."""
        if self._closed:
            raise EndpointError(f"The connection to {self.address} has been closed.")
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if connection.reusable and now - since < _KEPT_S:
                return connection
            self._drop(connection)
        return None

    def _drop(self, connection: HttpConnection) -> None:
        connection.close()
        self._connections.discard(connection)

    async def _connected(self) -> HttpConnection:
        """A new connection; raises EndpointUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self._silence),
                    self._url.hostname or "",
                    self._url.port or (443 if self._ssl else 80),
                    ssl=self._ssl,
                )
        except TimeoutError:
            raise EndpointUnavailable(f"Nothing answers at {self.address}.") from None
        except OSError as error:
            told = error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError)
            why = os.strerror(error.errno or 0) if told else error
            raise EndpointUnavailable(f"Nothing answers at {self.address}: {why}.") from None
        self._connections.add(connection)
        return connection

    async def _whole(self, answer: HttpConnection, path: str) -> bytes:
        data = bytearray()
        while part := await answer.part():
            data += part
            if len(data) > MOST_BYTES:
                raise EndpointError(self._too_long(path))
        return bytes(data)

    def _json(self, data: bytes, path: str) -> Any:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise EndpointError(
                f"The server at {self.address} answered {path} with what is no JSON: {error}"
            ) from None

    def _too_long(self, path: str) -> str:
        return f"The server at {self.address} answered {path} with more than {MOST_BYTES:,} bytes."

    def _hidden(self, words: bytes) -> bytes:
        """A server's words without the key, which some repeat."""
        return words.replace(self._key.encode(), b"***") if self._key else words


def _checked(url: str) -> SplitResult:
    """The address before /v1, which may be given with it."""
    try:
        parsed = urlsplit(url.strip())
        port = parsed.port
        host = parsed.hostname or ""
        usable = parsed.scheme in ("http", "https") and re.fullmatch(r"[!-~]+", host) is not None
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "The url of a server must be like http://127.0.0.1:8000, with http or https.",
            hint="Give the address that the server prints when it starts, or what stands before "
            "/v1.",
        )
    if parsed.username or parsed.password or parsed.query:
        raise ConfigError(
            f"The url of the server at {parsed.hostname} holds a name, a password or a query.",
            hint="Put the key into an environment variable, and name that with api_key_env.",
        )
    default = {"http": 80, "https": 443}[parsed.scheme]
    netloc = parsed.netloc.removesuffix(f":{default}") if port == default else parsed.netloc
    path = parsed.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return SplitResult(parsed.scheme, netloc, quote(path, safe="/%:@!$&'()*+,;=~"), "", "")
