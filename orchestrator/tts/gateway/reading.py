"""Requests as they come in: who asks, what is asked, and whether it is within limits."""

from __future__ import annotations

import time
from typing import TypeVar

from msgspec import Struct

from .exchange import Exchange
from .openai.errors import ApiError
from .openai.requests import read_request
from .safety import Refusal
from .service import Service

IGNORED = "x-tts-ignored"
"""The header of a response that names the fields of its request that nobody knows."""
_MOST_NAMED = 20

T = TypeVar("T", bound=Struct)


def authenticate(service: Service, exchange: Exchange) -> None:
    """Find the key that a request comes with; raises ApiError if it needs one."""
    if not service.keyring.required:
        return
    scheme, _, key = (exchange.header(b"authorization") or "").partition(" ")
    exchange.key = service.keyring.find(key.strip()) if scheme.lower() == "bearer" else None
    if exchange.key is None:
        raise ApiError(
            401,
            "The API key is not valid." if key else "An API key is needed: Authorization: Bearer.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
    exchange.record.key = exchange.key.id


async def read(service: Service, exchange: Exchange, kind: type[T]) -> tuple[T, bytes]:
    """The request in a body, and the body; raises ApiError."""
    body = await exchange.body(service.settings.max_body)
    request, ignored = read_request(kind, body)
    if ignored:
        exchange.add_header(IGNORED, ", ".join(name[:40] for name in ignored[:_MOST_NAMED]))
    return request, body


def admit(service: Service, exchange: Exchange, tokens: int, *, search: bool) -> None:
    """Charge the request to its key, which may use so many tokens; raises ApiError (429)."""
    if exchange.key is not None:
        key = exchange.key
        admitted = service.limiter.admit(
            key.id, key.limits, time.monotonic_ns(), tokens=tokens, search=search
        )
        exchange.extra_headers += admitted.headers
        if isinstance(admitted, Refusal):
            raise ApiError(429, admitted.message, code="rate_limit_exceeded")
        exchange.admission = admitted
    exchange.record.t1 = time.monotonic()
