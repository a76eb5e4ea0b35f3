"""`/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them and lm-eval asks them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from .answer.prompts import chat_text, known_ids, prompt_text, require_length, tokenised
from .answer.thinking import template_variables
from .call import Call, require_allowed
from .openai.errors import bad_request
from .openai.requests import DetokenizeRequest, TokenizeRequest


async def tokenize(call: Call[TokenizeRequest]) -> None:
    """Respond with the token ids of a text or a chat."""
    call.admit(0)
    request, generator = call.request, call.service.generator
    models, tokenizer = generator.models, generator.models.generator
    if (request.prompt is None) == (request.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    if request.messages is not None:
        texts = [message.text for message in request.messages]
        models = models.asked_with(template_variables(models, request))

        def text() -> str:
            return chat_text(models, request)[0]
    else:
        texts = [request.prompt or ""]
        special = request.add_special_tokens
        text = partial(prompt_text, tokenizer, texts[0], special=special)
    characters = require_length(tokenizer, generator.context, *texts)
    ids = await tokenised(characters, lambda: tokenizer.encode(text()))
    answer = {"count": len(ids), "max_model_len": generator.context, "tokens": ids}
    await call.exchange.respond(msgspec.json.encode(answer))


async def detokenize(call: Call[DetokenizeRequest]) -> None:
    """Respond with the text of token ids."""
    call.admit(0)
    tokenizer, ids = call.service.generator.models.generator, call.request.tokens
    text = await tokenised(len(ids), lambda: tokenizer.decode(known_ids(tokenizer, ids)))
    await call.exchange.respond(msgspec.json.encode({"prompt": text}))


async def tokenizer_info(call: Call[None]) -> None:
    """Respond with facts for a client that formats chats itself."""
    service = call.service.of_model(call.exchange.query.get("model", ""))
    require_allowed(call.exchange, *service.models)
    tokenizer = service.generator.models.generator
    info: dict[str, Any] = {
        name: tokenizer.special(name) or None
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    info["chat_template"] = tokenizer.chat_template
    info["vocab_size"] = tokenizer.vocab_size
    info["model_max_length"] = service.generator.context
    await call.exchange.respond(msgspec.json.encode(info))
