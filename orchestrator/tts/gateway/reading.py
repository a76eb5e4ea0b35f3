"""Requests as they come in: read, and what is ignored of them said in the response."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from .exchange import Exchange
from .openai.requests import read_request
from .service import Service

IGNORED = "x-tts-ignored"
"""The header of a response that names the fields of its request that nobody knows."""
_MOST_NAMED = 20

T = TypeVar("T", bound=Struct)


async def read(service: Service, exchange: Exchange, kind: type[T]) -> T:
    """The request in a body; raises ApiError."""
    request, ignored = read_request(kind, await exchange.body(service.settings.max_body))
    if ignored:
        exchange.add_header(IGNORED, ", ".join(name[:40] for name in ignored[:_MOST_NAMED]))
    return request
