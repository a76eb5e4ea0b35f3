"""Handlers of texts, chats and responses: plain generation, or a search instead."""

from __future__ import annotations

from functools import partial

from tts.build.thinking import Thinking
from tts.prompting import Models

from ..exchange import Exchange
from ..openai.answers import Encoder
from ..openai.completion_encoders import ChatEncoder, TextEncoder
from ..openai.errors import bad_request
from ..openai.messages import ChatMessage
from ..openai.requests import MAX_CHOICES, ChatRequest, CompletionRequest, Request
from ..openai.response_encoder import ResponsesEncoder
from ..openai.responses import ResponsesRequest, as_chat
from ..service import Service, read, strategy_of
from ..tools.forced import plain_tools
from ..tools.forms import form_of
from . import candidates, plain, searches
from .candidates import CandidateTurn
from .prompts import (
    chat_text,
    filter_messages,
    filter_tools,
    filtered,
    form_read,
    known_ids,
    prompt_text,
    require_length,
    tokenised,
    tool_chat_text,
)
from .search_request import wants_search
from .structured import OutputForm, asks_form, output_form, require_guides
from .thinking import template_variables, with_budget
from .tool_turns import ToolTurn, tool_turn

DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(service: Service, exchange: Exchange) -> None:
    """Complete prompts, given as texts or as token ids."""
    request, body = await read(service, exchange, CompletionRequest)
    strategy = strategy_of(service, exchange, request.model)
    exchange.record.model = request.model
    form = await _form(service, request)
    encoder = TextEncoder(exchange.record.id, request)
    if wants_search(request, strategy):
        (prompt, *others) = request.prompts
        if others or not isinstance(prompt, str):
            raise bad_request("A search takes one prompt, as text.", "prompt")
        asked = [ChatMessage("user", prompt)]
        await searches.answer_by_search(
            service, exchange, request, strategy, asked, body, encoder, form
        )
        return
    if request.limit == 0 and not request.echo:
        raise bad_request("max_tokens is 0, and nothing is to be given back (echo).", "max_tokens")
    if request.limit is None:
        request.max_tokens = DEFAULT_MAX_TOKENS
    _check(request)
    prompts = await _tokenised(service, request)
    if not all(prompts):
        raise bad_request("A prompt is empty: it has no tokens.", "prompt")
    key = str(request.prompts[0])
    await plain.answer(
        service,
        exchange,
        request,
        prompts,
        encoder,
        key=key,
        logs=request.logprobs,
        echo=request.echo,
        guide=form.guide if form else None,
    )


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
    """What the filters let pass; ApiError for token ids of which they would redact any."""
    if not service.filters.of_input:
        return prompts
    tokenizer = service.generator.models.generator
    texts = [
        prompt if isinstance(prompt, str) else tokenizer.decode(known_ids(tokenizer, prompt))
        for prompt in prompts
    ]
    passed: list[str | list[int]] = []
    for prompt, text, left in zip(
        prompts, texts, await filtered(service.filters, texts), strict=True
    ):
        if not isinstance(prompt, str) and left != text:
            raise bad_request(
                "The content filters would redact this prompt; give it as text, not as token ids.",
                "prompt",
                "content_filter",
            )
        passed.append(left if isinstance(prompt, str) else prompt)
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


async def chat_completions(service: Service, exchange: Exchange) -> None:
    """Answer a chat."""
    request, body = await read(service, exchange, ChatRequest)
    encoder = ChatEncoder(exchange.record.id, request)
    await _answer_chat(service, exchange, request, body, encoder)


async def responses(service: Service, exchange: Exchange) -> None:
    """Answer a request of the Responses API: a chat under another name. Nothing of it is kept."""
    request, body = await read(service, exchange, ResponsesRequest)
    chat = as_chat(request)
    encoder = ResponsesEncoder(exchange.record.id, request)
    exchange.broken_off = encoder.failed
    await _answer_chat(service, exchange, chat, body, encoder)


async def _answer_chat(
    service: Service, exchange: Exchange, request: ChatRequest, body: bytes, encoder: Encoder
) -> None:
    """Answer a chat that was read from a body, in the form of its API."""
    strategy = strategy_of(service, exchange, request.model)
    exchange.record.model = request.model
    form = await _form(service, request)
    turn, guide = None, form.guide if form else None
    variables = template_variables(service.generator.models, request)
    models = service.generator.models.asked_with(variables)
    with_budget(models.thinking, request.thinking_token_budget)
    if request.asks_tools:
        prompt, turn, thinking = await _with_tools(service, models, request, form)
        guide = turn.guide if turn else guide
        thinking = with_budget(thinking, request.thinking_token_budget)
        if wants_search(request, strategy):
            drawn = CandidateTurn(request, prompt, guide, turn, variables, thinking)
            await candidates.answer_by_candidates(service, exchange, drawn, strategy, body, encoder)
            return
    elif wants_search(request, strategy):
        await searches.answer_by_search(
            service, exchange, request, strategy, request.messages, body, encoder, form, variables
        )
        return
    else:
        tokenizer, context = service.generator.models.generator, service.generator.context
        characters = require_length(tokenizer, context, *(each.text for each in request.messages))
        await filter_messages(service.filters, request.messages)

        def read() -> tuple[list[int], Thinking | None]:
            text, thinking = chat_text(models, request)
            return tokenizer.encode(text), thinking

        prompt, thinking = await tokenised(characters, read)
        thinking = with_budget(thinking, request.thinking_token_budget)
    await plain.answer(
        service,
        exchange,
        request,
        [prompt],
        encoder,
        key=_conversation(request.messages),
        logs=_logs(request),
        guide=guide,
        turn=turn,
        thinking=thinking,
    )


async def _with_tools(
    service: Service, models: Models, request: ChatRequest, form: OutputForm | None
) -> tuple[list[int], ToolTurn | None, Thinking | None]:
    """The prompt of a chat that has tools, or in which tools were called, and how they are called.

    With it how the model thinks, if the prompt ends inside the thinking.

    A call that must come begins the answer: the prompt's end has its beginning unless that is the
    thinking.
    """
    if request.continue_final_message or not request.add_generation_prompt:
        raise bad_request(
            "A chat with tools cannot be continued: the model is to answer it.",
            "continue_final_message",
        )
    tokenizer, context = models.generator, service.generator.context
    turn_of = partial(tool_turn, service, request, form)
    must_call = request.tool_choice not in (None, "none", "auto")
    turn = await form_read(turn_of) if must_call else turn_of()
    tools = request.tools if turn else []
    texts = [message.text for message in request.messages]
    texts += [call.function.arguments for m in request.messages for call in m.tool_calls or ()]
    characters = require_length(tokenizer, context, *texts, plain_tools(tools))
    await filter_messages(service.filters, request.messages)
    await filter_tools(service.filters, request.messages, tools)
    call_form = turn.form if turn else form_of(tokenizer.chat_template)

    def read() -> tuple[list[int], ToolTurn | None, Thinking | None]:
        text, thinking = tool_chat_text(models, request.messages, tools, call_form)
        prefix = turn.prefix if turn and not thinking else ""
        return tokenizer.encode(text + prefix), turn, thinking

    return await tokenised(characters, read)


def _logs(request: ChatRequest) -> int | None:
    if request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs: true.", "top_logprobs")
    return request.top_logprobs if request.logprobs else None


async def _form(service: Service, request: Request) -> OutputForm | None:
    """The form that a request asks of its answer, if the engine can hold an output to it."""
    if not asks_form(request):
        return None
    form = await form_read(lambda: output_form(request))
    if form:
        require_guides(service.deployment, form.param)
    return form


def _conversation(messages: list[ChatMessage]) -> str:
    """The part that all turns of a conversation share: its beginning, to the first question."""
    first = next((at for at, each in enumerate(messages) if each.role == "user"), 0)
    return "\0".join(message.text for message in messages[: first + 1])
