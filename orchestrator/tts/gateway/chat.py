"""`/v1/chat/completions`."""

from __future__ import annotations

from . import plain, searches
from .exchange import Exchange
from .openai.errors import bad_request
from .openai.requests import ChatMessage, ChatRequest
from .prompts import chat_text, require_length
from .reading import read
from .service import Service


async def chat_completions(service: Service, exchange: Exchange) -> None:
    """Answer a chat."""
    request, body = await read(service, exchange, ChatRequest)
    strategy = service.strategy_of(request.model)
    exchange.record.model = request.model
    form = plain.ChatForm()
    if searches.wants_search(request, strategy):
        question = _question(request.messages)
        await searches.answer(service, exchange, request, strategy, question, body, form)
        return
    tokenizer, context = service.generator.models.generator, service.generator.context
    require_length(tokenizer, context, *(message.text for message in request.messages))
    for message in request.messages:
        message.content = service.filters.input(message.text)
    text = chat_text(
        service.generator.chats,
        request.messages,
        generation_prompt=request.add_generation_prompt,
        continues=request.continue_final_message,
    )
    prompt = tokenizer.encode(text)
    key = _conversation(request.messages)
    await plain.answer(service, exchange, request, [prompt], form, key=key, logs=request.logprobs)


def _conversation(messages: list[ChatMessage]) -> str:
    """What all turns of a conversation have in common: its beginning, to the first question."""
    first = next((at for at, each in enumerate(messages) if each.role == "user"), 0)
    return "\0".join(message.text for message in messages[: first + 1])


def _question(messages: list[ChatMessage]) -> str:
    """The question of a chat that is to be searched; raises ApiError unless it is all there is."""
    (*before, last) = messages
    if before or last.role != "user":
        raise bad_request(
            "A search takes one message, of the user: the deployment has the system prompt, and "
            "the verifier judges the steps of one answer to one question.",
            "messages",
        )
    return last.text
