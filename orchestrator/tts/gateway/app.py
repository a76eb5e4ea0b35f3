"""The ASGI application: which handler a path has, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tts.build.errors import TtsError

from .chat import chat_completions
from .completions import completions
from .exchange import Exchange, Receive, Send
from .health import Readiness, health
from .models import list_models, one_model
from .openai.errors import ApiError, api_error, internal_error
from .openai.events import event
from .service import Service

logger = logging.getLogger(__name__)

Handler = Callable[[Service, Exchange], Awaitable[None]]


class App:
    """The gateway as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        ready = Readiness()
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", chat_completions),
            "/v1/completions": ("POST", completions),
            "/v1/models": ("GET", list_models),
            "/health": ("GET", health),
            "/ready": ("GET", ready),
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            handler = self._handler(exchange)
            await handler(self._service, exchange)
        except asyncio.CancelledError:
            if not exchange.disconnected:
                raise
        except Exception as error:
            await _fail(exchange, error)
        finally:
            exchange.close()

    def _handler(self, exchange: Exchange) -> Handler:
        method, handler = self._routes.get(exchange.path, ("GET", one_model))
        if exchange.path not in self._routes and not exchange.path.startswith("/v1/models/"):
            raise ApiError(404, f"There is nothing at {exchange.path!r:.200}.")
        if exchange.method != method:
            raise ApiError(
                405,
                f"{exchange.path:.200} takes {method}, not {exchange.method:.20}.",
                headers={"allow": method},
            )
        return handler


async def _fail(exchange: Exchange, error: Exception) -> None:
    """Tell a client what went wrong: as a response, or within the one that has begun."""
    if isinstance(error, TtsError):
        told = api_error(error)
    else:
        logger.error("a request to %s failed", exchange.path, exc_info=error)
        told = internal_error()
    if exchange.disconnected:
        return
    if exchange.streaming:
        await exchange.end_events(event(told.body()))
    elif exchange.status is None:
        for name, value in told.headers.items():
            exchange.add_header(name, value)
        await exchange.respond(told.body(), told.status)
