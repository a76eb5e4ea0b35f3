"""`/v1/completions`: prompts as text or token ids, one or several."""

from __future__ import annotations

from . import plain, searches
from .exchange import Exchange
from .long_texts import tokenised
from .openai.errors import bad_request
from .openai.requests import MAX_CHOICES, ChatMessage, CompletionRequest
from .prompts import known_ids, prompt_text, require_length
from .reading import read
from .service import Service

DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(service: Service, exchange: Exchange) -> None:
    """Answer a request for completions."""
    request, body = await read(service, exchange, CompletionRequest)
    strategy = service.strategy_of(request.model)
    exchange.record.model = request.model
    if searches.wants_search(request, strategy):
        (prompt, *others) = request.prompts
        if others or not isinstance(prompt, str):
            raise bad_request("A search takes one prompt, as text.", "prompt")
        form = plain.TextForm()
        asked = [ChatMessage("user", prompt)]
        await searches.answer(service, exchange, request, strategy, asked, body, form)
        return
    if request.limit is None:
        request.max_tokens = DEFAULT_MAX_TOKENS
    _check(request)
    tokenizer = service.generator.models.generator
    characters = sum(
        require_length(tokenizer, service.generator.context, prompt)
        if isinstance(prompt, str)
        else len(prompt)
        for prompt in request.prompts
    )
    filtered = [_filtered(service, prompt) for prompt in request.prompts]

    def ids_of(prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return known_ids(tokenizer, prompt)
        return tokenizer.encode(prompt_text(tokenizer, prompt, special=request.add_special_tokens))

    prompts = await tokenised(characters, lambda: [ids_of(prompt) for prompt in filtered])
    if not all(prompts):
        raise bad_request("A prompt is empty: it has no tokens.", "prompt")
    echo = [
        prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
        for prompt in (request.prompts if request.echo else ())
    ]
    logs = request.logprobs is not None
    form, key = plain.TextForm(), str(request.prompts[0])
    await plain.answer(service, exchange, request, prompts, form, key=key, logs=logs, echo=echo)


def _filtered(service: Service, prompt: str | list[int]) -> str | list[int]:
    """What the filters let pass of a prompt; ApiError for ids of which they would redact any."""
    if isinstance(prompt, str):
        return service.filters.input(prompt)
    if service.filters.of_input:
        tokenizer = service.generator.models.generator
        text = tokenizer.decode(known_ids(tokenizer, prompt))
        if service.filters.input(text) != text:
            raise bad_request(
                "The content filters would redact this prompt; give it as text, not as token ids.",
                "prompt",
                "content_filter",
            )
    return prompt


def _check(request: CompletionRequest) -> None:
    choices = len(request.prompts) * request.n
    if not 1 <= choices <= MAX_CHOICES:
        raise bad_request(
            f"The request asks for {choices} choices over all its prompts; 1 to {MAX_CHOICES} are "
            "allowed.",
            "prompt",
        )
    if request.best_of not in (None, request.n):
        raise bad_request(
            "best_of is not supported here: the models that end with a strategy's name choose the "
            "best of n by a verifier.",
            "best_of",
            "unsupported_parameter",
        )
    if request.echo and request.logprobs is not None:
        raise bad_request(
            "echo with logprobs is not supported here: the engine gives no log-probabilities of "
            "prompts.",
            "logprobs",
            "unsupported_parameter",
        )
    if request.logprobs:
        raise bad_request(
            "logprobs may only be 0 here, which is those of the tokens that were drawn: the engine "
            "gives none of others.",
            "logprobs",
            "unsupported_parameter",
        )
