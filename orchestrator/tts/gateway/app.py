"""The ASGI application: which handler a path has, which web pages may use it, answers to errors.

A browser sends a page's origin with every POST, and asks before it lets a page of another origin
read an answer; with a GET to its own host it sends none. Without keys the gateway is for this
machine, so a request that calls it by another name is refused, whatever that name resolves to: its
page may be anybody's (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tts.base.errors import TtsError

from .answer.completions import chat_completions, completions, responses
from .call import Call, Service, authenticate, read_call
from .draining import DRAINING, cut_off, refused
from .exchange import Exchange, Receive, Send
from .observability.record import Outcome
from .observability.recorder import PROBES
from .openai.errors import ApiError, api_error, internal_error, quoted
from .page import FOLDER, PAGE, page
from .readings import detokenize, pooling, rerank, tokenize, tokenizer_info
from .status import MODEL, POSTS, Readiness, health, list_models, metrics, one_model, openapi

logger = logging.getLogger(__name__)

CHAT_COMPLETIONS, COMPLETIONS, POOLING = "/v1/chat/completions", "/v1/completions", "/pooling"
RESPONSES, RERANK = "/v1/responses", "/v1/rerank"
ID_PREFIXES = {
    CHAT_COMPLETIONS: "chatcmpl-",
    COMPLETIONS: "cmpl-",
    RESPONSES: "resp_",
    POOLING: "pool-",
    RERANK: "rerank-",
}
FOLDERS = (MODEL, FOLDER)
"""Each of them is one route, whatever stands behind."""
OPEN = frozenset({"/health", "/ready", "/openapi.json", PAGE, FOLDER})
"""Paths that need no key: the page asks for one."""
SERVED = (
    f"{CHAT_COMPLETIONS}, {COMPLETIONS}, {RESPONSES}, {RERANK} and {POOLING} (scores) are "
    "served: see /openapi.json"
)
Handler = Callable[[Call[Any]], Awaitable[None]]


class App:
    """The gateway as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.routes: dict[str, Handler] = {
            CHAT_COMPLETIONS: chat_completions,
            COMPLETIONS: completions,
            RESPONSES: responses,
            "/v1/models": list_models,
            MODEL: one_model,
            POOLING: pooling,
            RERANK: rerank,
            "/tokenize": tokenize,
            "/detokenize": detokenize,
            "/tokenizer_info": tokenizer_info,
            "/openapi.json": openapi,
            "/metrics": metrics,
            "/health": health,
            "/ready": Readiness(),
            PAGE: page,
            FOLDER: page,
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        if scope["type"] != "http":
            return
        service = self._service
        path = scope["path"].rstrip("/") or "/"
        scope = {**scope, "path": path}
        path = next((folder for folder in FOLDERS if path.startswith(folder)), path)
        record = service.recorder.begin(path if path in self.routes else "other")
        exchange = Exchange(scope, receive, send, record, ID_PREFIXES.get(path, "req-"))
        record.trace_parent = exchange.header(b"traceparent")
        if service.settings.keep_addresses:
            record.client = exchange.client or None
        # a gateway that drains answers probes, but waits for none
        running = nullcontext() if path in PROBES else service.drain.running(record)
        with running, closing(exchange):
            try:
                await self._answer(path, exchange)
                record.outcome = "ok"
            except asyncio.CancelledError:
                record.outcome, record.error = "cancelled", "client_disconnected"
                if service.drain.over and not exchange.disconnected:
                    await _fail(exchange, cut_off())
                elif not exchange.disconnected:
                    raise
            except Exception as error:
                await _fail(exchange, error)
            finally:
                if exchange.admission:
                    exchange.admission.end(time.monotonic_ns(), record.spent_tokens)
                service.recorder.end(record)

    async def _answer(self, path: str, exchange: Exchange) -> None:
        """Answer a request that may come now and from where it does; raises a TtsError."""
        service = self._service
        if service.drain.began and path not in PROBES:
            exchange.add_header("connection", "close")
            raise refused()
        self._require_own_host(exchange)
        if self._is_preflight(exchange):
            await exchange.respond(b"", 204)
            return
        handler = self.routes.get(path)
        kind, _ = POSTS.get(path, (None, ""))
        methods = ("POST",) if kind else ("GET", "HEAD")
        if handler and exchange.method not in methods:
            message = f"{exchange.path:.200} takes {methods[0]}, not {exchange.method:.20}."
            raise ApiError(405, message, headers={"allow": methods[0]})
        if path not in OPEN:
            authenticate(service, exchange)
        if handler is None:
            is_response = exchange.path.startswith(f"{RESPONSES}/")
            reason = "no response is stored" if is_response else SERVED
            raise ApiError(404, f"There is nothing at {quoted(exchange.path)}; {reason}.")
        call = await read_call(service, exchange, kind) if kind else Call(service, exchange, None)
        await handler(call)

    def _require_own_host(self, exchange: Exchange) -> None:
        """Raise ApiError for a name that somebody else may have made that of this machine."""
        origins = self._service.settings.cors_origins
        needs_key = self._service.keyring.required
        if not is_own_host(exchange.host, origins, needs_key=needs_key):
            raise ApiError(
                403,
                f"This gateway needs no keys, so it serves requests to localhost, to addresses and "
                f"to the hosts of --cors-origin alone, and not to {quoted(exchange.host)}.",
                code="host_not_allowed",
            )

    def _is_preflight(self, exchange: Exchange) -> bool:
        """Whether a browser only asks what a page may send; ApiError for a page that may not."""
        origin = exchange.header(b"origin")
        if origin is None:
            return False
        origins = self._service.settings.cors_origins
        needs_key = self._service.keyring.required
        if not is_allowed(origin, exchange.host, origins, needs_key=needs_key):
            raise ApiError(
                403,
                f"Pages of {quoted(origin)} may not use this gateway (--cors-origin).",
                code="origin_not_allowed",
            )
        headers = exchange.header(b"access-control-request-headers") or ""
        asks = exchange.header(b"access-control-request-method") is not None
        if exchange.method == "OPTIONS" and asks:
            exchange.extra_headers += _preflight_headers(origin, headers, origins)
            return True
        exchange.extra_headers += _answer_headers(origin, origins)
        return False


async def _fail(exchange: Exchange, error: Exception) -> None:
    """Tell a client what went wrong: as a response, or within the one that has begun."""
    record = exchange.record
    if isinstance(error, TtsError):
        reported = api_error(error)
        if reported is not error and reported.status >= 500:  # it tells the client less
            logger.warning("a request to %s failed: %s", record.endpoint, error)
    else:
        logger.error("a request to %s failed", record.endpoint, exc_info=error)
        reported = internal_error()
    by_status: Outcome = "failed" if reported.status >= 500 else "refused"
    record.outcome = _OUTCOMES.get(reported.code, by_status)
    record.error = reported.code or reported.type
    if exchange.disconnected:
        return
    if exchange.streaming:
        await exchange.end_events(exchange.broken_off(reported))
    elif not record.status:
        for name, value in reported.headers.items():
            exchange.add_header(name, value)
        await exchange.respond(reported.body(), reported.status)


_OUTCOMES: dict[str | None, Outcome] = {
    "content_filter": "filtered",
    "deadline_exceeded": "deadline",
    DRAINING: "refused",
}
"""Outcomes by an error's code; of all other errors the status says."""


ANY = "*"
_EXPOSED = b"x-tts-gateway-ms, x-tts-ignored, retry-after, x-ratelimit-remaining-requests"
_METHODS = b"GET, POST, OPTIONS"
_MAX_AGE_S = b"600"

Headers = list[tuple[bytes, bytes]]


def is_allowed(origin: str, host: str, origins: Sequence[str], *, needs_key: bool) -> bool:
    """Whether a page of `origin` may use the gateway, which it has called `host`."""
    if ANY in origins or origin in origins:
        return True
    try:
        at = urlsplit(origin)
    except ValueError:
        return False
    if at.netloc != host:
        return False
    address = _address(at.hostname or "")
    is_loopback = address is not None and address.is_loopback
    return needs_key or at.hostname == "localhost" or is_loopback


@lru_cache(maxsize=64)
def is_own_host(host: str, origins: Sequence[str], *, needs_key: bool) -> bool:
    """Whether `host`, as a request calls the gateway, is a name that no page of others can have.

    An address is none that a DNS server makes up; a client without a name for it is no browser.
    """
    if needs_key or not host or ANY in origins:
        return True
    try:
        if host in [urlsplit(origin).netloc for origin in origins]:
            return True
        at = urlsplit(f"//{host}")
        name = at.hostname or ""
        if at.netloc != host or at.username is not None:  # no client writes a path or user here
            return False
    except ValueError:
        return False
    return name == "localhost" or _address(name) is not None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _answer_headers(origin: str, origins: Sequence[str]) -> Headers:
    if ANY not in origins and origin not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def _preflight_headers(origin: str, headers: str, origins: Sequence[str]) -> Headers:
    """Headers for a browser that asks whether a page may send a request with `headers`."""
    return [
        *_answer_headers(origin, origins),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.encode("latin-1")),
        (b"access-control-max-age", _MAX_AGE_S),
    ]
