"""The ASGI application: which handler a path has, and how errors are answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tts.base.errors import TtsError

from .answer.completions import chat_completions, completions, responses
from .draining import DRAINING, cut_off, refused
from .exchange import Exchange, Receive, Send
from .observability.record import Outcome
from .observability.recorder import PROBES
from .openai.errors import ApiError, api_error, internal_error, quoted
from .openai.requests import named_model
from .openapi import openapi
from .origins import answer_headers, is_allowed, is_own_host, preflight_headers
from .page.files import FOLDER, PAGE, page
from .pooling import pooling
from .rerank import rerank
from .service import Service, authenticate
from .status import MODEL, Readiness, health, list_models, metrics, one_model
from .tokens import detokenize, tokenize, tokenizer_info

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
"""Beginning of the ids that are made here."""
FOLDERS = (MODEL, FOLDER)
"""Each of them is one route, whatever stands behind."""
OPEN = frozenset({"/health", "/ready", "/openapi.json", PAGE, FOLDER})
"""Paths that need no key: the page asks for one."""
SERVED = (
    f"{CHAT_COMPLETIONS}, {COMPLETIONS}, {RESPONSES}, {RERANK} and {POOLING} (scores) are "
    "served: see /openapi.json"
)
Handler = Callable[[Service, Exchange], Awaitable[None]]


class App:
    """The gateway as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes: dict[str, tuple[str, Handler]] = {
            CHAT_COMPLETIONS: ("POST", chat_completions),
            COMPLETIONS: ("POST", completions),
            RESPONSES: ("POST", responses),
            "/v1/models": ("GET", list_models),
            MODEL: ("GET", one_model),
            POOLING: ("POST", pooling),
            RERANK: ("POST", rerank),
            "/tokenize": ("POST", tokenize),
            "/detokenize": ("POST", detokenize),
            "/tokenizer_info": ("GET", tokenizer_info),
            "/openapi.json": ("GET", openapi),
            "/metrics": ("GET", metrics),
            "/health": ("GET", health),
            "/ready": ("GET", Readiness()),
            PAGE: ("GET", page),
            FOLDER: ("GET", page),
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        if scope["type"] != "http":
            return
        service = self._service
        path = scope["path"].rstrip("/") or "/"
        scope = {**scope, "path": path}
        path = next((folder for folder in FOLDERS if path.startswith(folder)), path)
        method, handler = self._routes.get(path, ("", _nothing))
        record = service.recorder.begin(path if method else "other")
        exchange = Exchange(scope, receive, send, record)
        exchange.identify(ID_PREFIXES.get(path, "req-"))
        record.trace_parent = exchange.header(b"traceparent")
        if service.settings.keep_addresses and scope.get("client"):
            record.client = scope["client"][0]
        drain, task = service.drain, asyncio.current_task()
        probes = path in PROBES  # a gateway that drains answers those, but waits for none
        if task and not probes:
            drain.enter(task, record)
        try:
            if drain.began and not probes:
                exchange.close_connection()
                raise refused()
            self._require_own_host(exchange)
            if self._is_preflight(exchange):
                await exchange.respond(b"", 204)
                record.outcome = "ok"
                return
            head = method == "GET" and exchange.method == "HEAD"
            if method and exchange.method != method and not head:
                raise _not_allowed(exchange, method)
            if path not in OPEN:
                authenticate(service, exchange)
            await handler(await self._service_of(exchange, path), exchange)
            record.outcome = "ok"
        except asyncio.CancelledError:
            record.outcome, record.error = "cancelled", "client_disconnected"
            if drain.ended and not exchange.disconnected:
                await _fail(exchange, cut_off())
            elif not exchange.disconnected:
                raise
        except Exception as error:
            await _fail(exchange, error)
        finally:
            exchange.close()
            used = record.prompt_tokens + record.answer_tokens + record.search_tokens
            if exchange.admission:
                exchange.admission.end(time.monotonic_ns(), used)
            service.recorder.end(record)
            if task:
                drain.leave(task)

    async def _service_of(self, exchange: Exchange, path: str) -> Service:
        """The service of the deployment that a request names; else the first one's."""
        first = self._service
        if len(first.services) == 1:
            return first
        if path == MODEL:
            return first.of_model(exchange.path.removeprefix(MODEL))
        if exchange.method == "POST":
            return first.of_model(named_model(await exchange.body(first.settings.max_body)))
        return first.of_model(exchange.query.get("model", ""))

    def _require_own_host(self, exchange: Exchange) -> None:
        """Raise ApiError for a name that somebody else may have made that of this machine."""
        named = self._service.settings.cors_origins
        needs_key = self._service.keyring.required
        if not is_own_host(exchange.host, named, needs_key=needs_key):
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
        named = self._service.settings.cors_origins
        needs_key = self._service.keyring.required
        if not is_allowed(origin, exchange.host, named, needs_key=needs_key):
            raise ApiError(
                403,
                f"Pages of {quoted(origin)} may not use this gateway (--cors-origin).",
                code="origin_not_allowed",
            )
        wanted = exchange.header(b"access-control-request-headers")
        asks = exchange.header(b"access-control-request-method") is not None
        if exchange.method == "OPTIONS" and asks:
            exchange.extra_headers += preflight_headers(origin, wanted or "", named)
            return True
        exchange.extra_headers += answer_headers(origin, named)
        return False


async def _nothing(service: Service, exchange: Exchange) -> None:
    told = "no response is stored" if exchange.path.startswith(f"{RESPONSES}/") else SERVED
    raise ApiError(404, f"There is nothing at {quoted(exchange.path)}; {told}.")


def _not_allowed(exchange: Exchange, method: str) -> ApiError:
    return ApiError(
        405,
        f"{exchange.path:.200} takes {method}, not {exchange.method:.20}.",
        headers={"allow": method},
    )


async def _fail(exchange: Exchange, error: Exception) -> None:
    """Tell a client what went wrong: as a response, or within the one that has begun."""
    if isinstance(error, TtsError):
        told = api_error(error)
        if told is not error and told.status >= 500:  # the client is not told what it says
            logger.warning("a request to %s failed: %s", exchange.record.endpoint, error)
    else:
        logger.error("a request to %s failed", exchange.record.endpoint, exc_info=error)
        told = internal_error()
    record = exchange.record
    record.outcome, record.error = _outcome(told), told.code or told.type
    if exchange.disconnected:
        return
    if exchange.streaming:
        await exchange.end_events(exchange.broken_off(told))
    elif not record.status:
        for name, value in told.headers.items():
            exchange.add_header(name, value)
        await exchange.respond(told.body(), told.status)


def _outcome(error: ApiError) -> Outcome:
    if error.code == "content_filter":
        return "filtered"
    if error.code == "deadline_exceeded":
        return "deadline"
    if error.code == DRAINING:
        return "refused"
    return "failed" if error.status >= 500 else "refused"
