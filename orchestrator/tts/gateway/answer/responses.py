"""`/v1/responses`: a chat under another name, whose answer has another form."""

from __future__ import annotations

from ..exchange import Exchange
from ..openai.response_encoder import ResponsesEncoder
from ..openai.responses import ResponsesRequest, as_chat
from ..service import Service, read
from .completions import answer_chat


async def responses(service: Service, exchange: Exchange) -> None:
    """Answer a request of the Responses API. Nothing of it is kept."""
    request, body = await read(service, exchange, ResponsesRequest)
    chat = as_chat(request)
    encoder = ResponsesEncoder(exchange.record.id, request)
    exchange.broken_off = encoder.failed
    await answer_chat(service, exchange, chat, body, encoder)
