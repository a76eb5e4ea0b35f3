"""Handlers of texts, chats and responses: plain generation, or a search instead."""

from __future__ import annotations

from ..call import Call
from ..openai.answers import Encoder
from ..openai.completion_encoders import ChatEncoder, TextEncoder
from ..openai.errors import bad_request
from ..openai.messages import ChatMessage
from ..openai.requests import MAX_CHOICES, ChatRequest, CompletionRequest, Request
from ..openai.response_encoder import ResponsesEncoder
from ..openai.responses import ResponsesRequest, as_chat
from ..output.generation import Sampling
from ..service import Service
from . import plain
from .candidates import answer_by_candidates
from .prompts import (
    chat_prompt,
    filtered,
    form_read,
    known_ids,
    prompt_text,
    require_length,
    tokenised,
)
from .searches import answer_by_search
from .structured import OutputForm, asks_form, output_form, require_guides
from .thinking import template_variables, with_budget
from .tool_turns import tool_prompt

DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(call: Call[CompletionRequest]) -> None:
    """Complete prompts, given as texts or as token ids."""
    request = call.request
    form = await _form(call)
    encoder = TextEncoder(call.record.id, request)
    if request.asks_search(call.strategy):
        (prompt, *others) = request.prompts
        if others or not isinstance(prompt, str):
            raise bad_request("A search takes one prompt, as text.", "prompt")
        await answer_by_search(call, encoder, [ChatMessage("user", prompt)], form)
        return
    if request.limit == 0 and not request.echo:
        raise bad_request("max_tokens is 0, and nothing is to be given back (echo).", "max_tokens")
    if request.limit is None:
        request.max_tokens = DEFAULT_MAX_TOKENS
    _check(request)
    prompts = await _tokenised(call.service, request)
    if not all(prompts):
        raise bad_request("A prompt is empty: it has no tokens.", "prompt")
    guide = form.guide if form else None
    conversation = str(request.prompts[0])
    sampling = Sampling(prompts, conversation, request.logprobs, request.echo, guide)
    await plain.answer(call, encoder, sampling)


async def _tokenised(service: Service, request: CompletionRequest) -> list[list[int]]:
    """The token ids of each prompt, within the context and as the filters let it pass."""
    tokenizer, context = service.generator.models.generator, service.generator.context
    size = 0
    for prompt in request.prompts:
        if isinstance(prompt, str):
            size += require_length(tokenizer, context, prompt)
        else:
            service.generator.room(prompt, None)
            size += len(prompt)
    prompts = await _filtered(service, request.prompts)

    def ids_of(prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return known_ids(tokenizer, prompt)
        return tokenizer.encode(prompt_text(tokenizer, prompt, special=request.add_special_tokens))

    return await tokenised(size, lambda: list(map(ids_of, prompts)))


async def _filtered(service: Service, prompts: list[str | list[int]]) -> list[str | list[int]]:
    """Prompts as the filters let them pass; ApiError for token ids that they would change."""
    if not service.filters.of_input:
        return prompts
    tokenizer = service.generator.models.generator
    texts = [
        prompt if isinstance(prompt, str) else tokenizer.decode(known_ids(tokenizer, prompt))
        for prompt in prompts
    ]
    after = await filtered(service.filters, texts)
    passed: list[str | list[int]] = []
    for prompt, text, new_text in zip(prompts, texts, after, strict=True):
        if not isinstance(prompt, str) and new_text != text:
            raise bad_request(
                "The content filters would redact this prompt; give it as text, not as token ids.",
                "prompt",
                "content_filter",
            )
        passed.append(new_text if isinstance(prompt, str) else prompt)
    return passed


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


async def chat_completions(call: Call[ChatRequest]) -> None:
    """Answer a chat."""
    await _answer_chat(call, ChatEncoder(call.record.id, call.request))


async def responses(call: Call[ResponsesRequest]) -> None:
    """Answer a request of the Responses API: a chat under another name. Nothing of it is kept."""
    chat = as_chat(call.request)
    encoder = ResponsesEncoder(call.record.id, call.request)
    call.exchange.broken_off = encoder.failed
    chat_call = Call(call.service, call.exchange, chat, call.body, call.strategy)
    await _answer_chat(chat_call, encoder)


async def _answer_chat(call: Call[ChatRequest], encoder: Encoder) -> None:
    """Answer a chat in the form of its API."""
    request, models = call.request, call.service.generator.models
    form = await _form(call)
    variables = template_variables(models, request)
    models = models.asked_with(variables)
    with_budget(models.thinking, request.thinking_token_budget)
    search = request.asks_search(call.strategy)
    if search and not request.asks_tools:
        await answer_by_search(call, encoder, request.messages, form, variables)
        return
    turn, guide = None, form.guide if form else None
    if request.asks_tools:
        prompt, thinking, turn = await tool_prompt(call, models, form)
        guide = turn.guide if turn else guide
    else:
        prompt, thinking = await chat_prompt(call, models)
    sampling = Sampling(
        [prompt],
        _conversation(request.messages),
        None if search else _logs(request),
        guide=guide,
        marks=turn.marks if turn else {},
        thinking=with_budget(thinking, request.thinking_token_budget),
        lead=turn.prefix if turn and thinking else "",
    )
    if search:
        await answer_by_candidates(call, encoder, sampling, turn, variables)
    else:
        await plain.answer(call, encoder, sampling, turn)


def _logs(request: ChatRequest) -> int | None:
    if request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs: true.", "top_logprobs")
    return request.top_logprobs if request.logprobs else None


async def _form(call: Call[Request]) -> OutputForm | None:
    """The form that a call asks of its answer, if the engine can hold an output to it."""
    if not asks_form(call.request):
        return None
    form = await form_read(lambda: output_form(call.request))
    if form:
        require_guides(call.service.deployment, form.param)
    return form


def _conversation(messages: list[ChatMessage]) -> str:
    """The part that all turns of a conversation share: its beginning, to the first question."""
    first = next((at for at, each in enumerate(messages) if each.role == "user"), 0)
    return "\0".join(message.text for message in messages[: first + 1])
