"""`/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them and lm-eval asks them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from .answer.prompts import chat_text, known_ids, prompt_text, require_length, tokenised
from .answer.thinking import template_variables
from .exchange import Exchange
from .openai.errors import bad_request
from .openai.requests import DetokenizeRequest, TokenizeRequest
from .service import Service, admit, read, require_allowed


async def tokenize(service: Service, exchange: Exchange) -> None:
    """The token ids of a text or a chat."""
    require_allowed(exchange, *service.models)
    request, _ = await read(service, exchange, TokenizeRequest)
    admit(service, exchange, 0, search=False)
    tokenizer, context = service.generator.models.generator, service.generator.context
    if (request.prompt is None) == (request.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    if request.messages is not None:
        texts = [message.text for message in request.messages]
        models = service.generator.models
        models = models.asked_with(template_variables(models, request))

        def text() -> str:
            return chat_text(models, request)[0]
    else:
        texts = [request.prompt or ""]
        special = request.add_special_tokens
        text = partial(prompt_text, tokenizer, texts[0], special=special)
    characters = require_length(tokenizer, context, *texts)
    ids = await tokenised(characters, lambda: tokenizer.encode(text()))
    answer = {"count": len(ids), "max_model_len": context, "tokens": ids}
    await exchange.respond(msgspec.json.encode(answer))


async def detokenize(service: Service, exchange: Exchange) -> None:
    """The text of token ids."""
    require_allowed(exchange, *service.models)
    request, _ = await read(service, exchange, DetokenizeRequest)
    admit(service, exchange, 0, search=False)
    tokenizer = service.generator.models.generator
    ids = request.tokens
    text = await tokenised(len(ids), lambda: tokenizer.decode(known_ids(tokenizer, ids)))
    await exchange.respond(msgspec.json.encode({"prompt": text}))


async def tokenizer_info(service: Service, exchange: Exchange) -> None:
    """Facts for a client that formats chats itself."""
    require_allowed(exchange, *service.models)
    tokenizer = service.generator.models.generator
    info: dict[str, Any] = {
        name: tokenizer.special(name) or None
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    info["chat_template"] = tokenizer.chat_template
    info["vocab_size"] = tokenizer.vocab_size
    info["model_max_length"] = service.generator.context
    await exchange.respond(msgspec.json.encode(info))
