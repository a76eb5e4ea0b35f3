"""`/v1/chat/completions`."""

from __future__ import annotations

from functools import partial

from . import plain, searches
from .exchange import Exchange
from .long_texts import tokenised
from .openai.requests import ChatMessage, ChatRequest
from .prompts import chat_text, filter_messages, require_length
from .reading import read
from .search_request import wants_search
from .service import Service


async def chat_completions(service: Service, exchange: Exchange) -> None:
    """Answer a chat."""
    request, body = await read(service, exchange, ChatRequest)
    strategy = service.strategy_of(request.model)
    exchange.record.model = request.model
    form = plain.ChatForm()
    if wants_search(request, strategy):
        await searches.answer_by_search(
            service, exchange, request, strategy, request.messages, body, form
        )
        return
    tokenizer, context = service.generator.models.generator, service.generator.context
    characters = require_length(tokenizer, context, *(message.text for message in request.messages))
    await filter_messages(service.filters, request.messages)
    text = partial(
        chat_text,
        service.generator.chats,
        request.messages,
        generation_prompt=request.add_generation_prompt,
        continues=request.continue_final_message,
    )
    prompt = await tokenised(characters, lambda: tokenizer.encode(text()))
    key = _conversation(request.messages)
    await plain.answer(service, exchange, request, [prompt], form, key=key, logs=request.logprobs)


def _conversation(messages: list[ChatMessage]) -> str:
    """What all turns of a conversation have in common: its beginning, to the first question."""
    first = next((at for at, each in enumerate(messages) if each.role == "user"), 0)
    return "\0".join(message.text for message in messages[: first + 1])
