"""Requests to a server and its answers, as JSON; the one place where its errors become ours.

Connections are kept and shared. Giving a request up closes its connection, which ends it on the
server. No proxy is taken from the environment, no redirection is followed, since it would take the
key elsewhere, and no answer may grow without bounds.
"""

from __future__ import annotations

import os
from asyncio import timeout
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from tts.base.errors import (
    ConfigError,
    EndpointError,
    EndpointTimeout,
    EndpointUnavailable,
    RequestRefused,
)
from tts.build.spec import ANSWER_TIMEOUT_S

from ..retry import AskedToWait, Heartbeat, retried

MOST_BYTES = 64 << 20
"""The largest answer, whole or streamed; the log-probabilities of 100,000 tokens take 8 MB."""
_MOST_EVENT_BYTES = 4 << 20
_CONNECT_S = 10.0
_LATE_END_S = 1.0
"""How long a stream may take to end after its last token."""
_KEPT_S = 4.0
"""How long a connection is kept that nothing uses: uvicorn closes them after 5 seconds."""


T = TypeVar("T")
_encode = msgspec.json.encode


@cache
def _timeout(total_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_S)


class Http:
    """One server. Everything that goes wrong with a request is raised as EndpointError."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        patience_s: float,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        comes_back: Callable[[], bool] = lambda: False,
    ) -> None:
        """`url` is what stands before the paths, else ConfigError; `comes_back`: see `retried`."""
        self._url = _checked(url)
        self.address = str(self._url).rstrip("/")
        """For people."""
        self.patience_s = patience_s
        """How long a request is sent again."""
        self.every_request: dict[str, Any] = {}
        """Fields that the body of every request has besides."""
        self._urls = cache(lambda path: self._url.joinpath(path.lstrip("/")))
        self._heartbeat = Heartbeat(f"The server at {self.address}", answer_timeout_s)
        self._key = api_key
        self._comes_back = comes_back
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def patiently(
        self, attempt: Callable[[], Awaitable[T]], patience_s: float | None = None
    ) -> T:
        """The result of an attempt, repeated after a failure that may pass (see `retried`)."""
        patience_s = self.patience_s if patience_s is None else patience_s
        return await retried(attempt, self._comes_back, patience_s)

    async def get(self, path: str) -> Any:
        """The answer of a path, None if it is not JSON."""
        async with self._answer("GET", path, None, _CONNECT_S) as answer:
            body = await self._whole(answer, path)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return None

    async def post(self, path: str, body: dict[str, Any] | None) -> Any:
        """The whole answer to a request. Raises EndpointError; cancelling it ends the request."""
        async with self._answer("POST", path, body) as answer:
            return self._json(await self._whole(answer, path), path)

    async def events(
        self, path: str, body: dict[str, Any], *, closed: bool = False
    ) -> AsyncGenerator[Any, None]:
        """The events of a streamed answer; see `post`. `closed`: by a connection of its own."""
        async with self._answer("POST", path, body, closed=closed) as answer:
            size, rest = 0, b""
            while part := await self._heard(answer.content.readany()):
                size += len(part)
                if size > MOST_BYTES:
                    raise EndpointError(self._too_long(path))
                *lines, rest = (rest + part).split(b"\n")
                if max(map(len, (*lines, rest))) > _MOST_EVENT_BYTES:
                    raise EndpointError(
                        f"The server sent an event of more than {_MOST_EVENT_BYTES:,} bytes."
                    )
                for line in lines:
                    data = line.removeprefix(b"data:").strip()
                    if not data or data == b"[DONE]" or not line.startswith(b"data:"):
                        continue  # what ends an event or a stream, comments, and other fields
                    event = self._json(data, path)
                    if error := error_of_event(self.address, path, event):
                        raise error
                    yield event

    async def aclose(self) -> None:
        """End what runs on it."""
        self._closed = True
        if self._session:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise EndpointError(f"The connection to {self.address} has been closed.")
        if self._session is None:
            headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                # a connection for each request in flight
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        total_s: float | None = None,
        *,
        closed: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request that was taken, within `total_s` seconds if that is given."""
        request = self._opened().request(
            method,
            self._urls(path),
            data=None if body is None else _encode(body | self.every_request),
            headers={"Connection": "close"} if closed else None,
            timeout=_timeout(total_s),
            allow_redirects=False,
        )
        try:
            async with await self._heard(request) as answer:
                if answer.status != 200:
                    text = await self._whole(answer, path)
                    if self._key:  # which some servers repeat
                        text = text.replace(self._key.encode(), b"***")
                    raise error_of_answer(self.address, path, answer.status, text, answer.headers)
                yield answer
        except aiohttp.ConnectionTimeoutError:
            raise EndpointUnavailable(f"Nothing answers at {self.address}.") from None
        except TimeoutError:
            raise EndpointTimeout(
                f"The server at {self.address} did not answer {path} within {total_s:g} s."
            ) from None
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise EndpointUnavailable(f"Nothing answers at {self.address}: {why}.") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            broken = isinstance(error, aiohttp.ClientPayloadError)
            what = "broke an answer off" if broken else "closed a connection"
            raise EndpointUnavailable(f"The server at {self.address} {what}.") from error

    async def _whole(self, answer: aiohttp.ClientResponse, path: str) -> bytes:
        data = bytearray()
        async with self._heartbeat.limited():
            while part := await answer.content.readany():
                self._heartbeat.beat()
                data += part
                if len(data) > MOST_BYTES:
                    raise EndpointError(self._too_long(path))
        return bytes(data)

    async def _heard(self, coming: Awaitable[T]) -> T:
        """Something from the server, unless it is silent for too long."""
        async with self._heartbeat.limited():
            came = await coming
        self._heartbeat.beat()
        return came

    def _json(self, data: bytes, path: str) -> Any:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise EndpointError(
                f"The server at {self.address} answered {path} with what is no JSON: {error}"
            ) from None

    def _too_long(self, path: str) -> str:
        return f"The server at {self.address} answered {path} with more than {MOST_BYTES:,} bytes."


async def read_out(events: AsyncGenerator[Any, None]) -> None:
    """Read what still comes of a stream that has told all, so that its connection is kept."""
    with suppress(EndpointError, TimeoutError):
        async with timeout(_LATE_END_S):
            async for _ in events:
                pass


def _checked(url: str) -> URL:
    """The address before /v1, which may be given with it."""
    try:
        parsed = URL(url.strip())
        usable = parsed.scheme in ("http", "https") and bool(parsed.host) and bool(parsed.port)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "The url of a server must be like http://127.0.0.1:8000, with http or https.",
            hint="Give the address that the server prints when it starts, or what stands before "
            "/v1.",
        )
    if parsed.user or parsed.password or parsed.query_string:
        raise ConfigError(
            f"The url of the server at {parsed.host} holds a name, a password or a query.",
            hint="Put the key into an environment variable, and name that with api_key_env.",
        )
    return parsed.with_path(parsed.path.rstrip("/").removesuffix("/v1")).with_fragment(None)


MOST_WORDS = 300
"""Characters of a server's words that an error repeats."""

_LATE = (408, 504)
_PASSING = (425, 429, 502, 503, 529)
_ENGINE_DIED = ("EngineDead", "EngineCore encountered")
"""vLLM's words, with status 500, for an engine that its server is about to follow."""
_LONGEST_WAIT_S = 86_400.0


def words_of(body: bytes) -> str:
    """What an answer with an error says, in one line and not too long."""
    try:
        words = _message(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        words = body[: 4 * MOST_WORDS].decode(errors="replace")
    words = " ".join(words.split()) or "it says nothing more"
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}..."


def error_of_answer(
    address: str, path: str, status: int, body: bytes, headers: Mapping[str, str]
) -> EndpointError:
    """What an answer other than 200 means for the one request that it answers."""
    words = words_of(body)
    message = f"The server at {address} answered {path} with status {status}: {words}"
    if status in _LATE:
        return EndpointTimeout(message)
    if status in _PASSING or (status == 500 and any(sign in words for sign in _ENGINE_DIED)):
        seconds = _seconds(headers.get("Retry-After"))
        return AskedToWait(message, seconds) if seconds else EndpointUnavailable(message)
    return RequestRefused(message, _HINTS.get(status))


_HINTS = {
    401: "It asks for a key: name the environment variable that holds it with api_key_env.",
    403: "The key that api_key_env names may not do this.",
    404: "The url is what stands before /v1/completions; model is a name that /v1/models lists.",
}


def error_of_event(address: str, path: str, event: Any) -> EndpointError | None:
    """The meaning of an error event in the middle of a stream."""
    error = event.get("error") if isinstance(event, dict) else None
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = code if type(code) is int and 400 <= code < 600 else 500
    return error_of_answer(address, path, status, msgspec.json.encode(event), {})


def _message(answer: Any) -> str:
    """The words in what servers answer: {"error": {"message"}}, {"message"}, {"detail"}."""
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict) and answer.get(name):
            answer = answer[name]
    return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()


def _seconds(header: str | None) -> float:
    """A Retry-After in seconds; 0 for a date, which no server of this kind sends, and nonsense."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_WAIT_S) if seconds > 0 else 0.0
