"""`/v1/chat/completions`."""

from __future__ import annotations

from . import plain
from .exchange import Exchange
from .openai.requests import ChatRequest
from .prompts import chat_text
from .reading import read
from .service import Service


async def chat_completions(service: Service, exchange: Exchange) -> None:
    """Answer a chat."""
    request = await read(service, exchange, ChatRequest)
    service.strategy_of(request.model)
    tokenizer = service.generator.models.generator
    text = chat_text(
        tokenizer,
        request.messages,
        generation_prompt=request.add_generation_prompt,
        continues=request.continue_final_message,
    )
    prompt = tokenizer.encode(text)
    form = plain.ChatForm()
    await plain.answer(exchange, service.generator, request, [prompt], form, logs=request.logprobs)
