"""Prompts and chats: filtered, with the thinking that a request sets, and as token ids.

Functions raise ApiError for what cannot be used.

Streams of others go on while a long text is read. Filters work on the event loop, a piece at a
time, with a turn for everything else in between. A tokenizer lets go of the interpreter lock for
long texts, so it works in a thread.

A request sets the variables of the chat template, and a budget. One that wants no thinking
(`enable_thinking: false`, `reasoning_effort: none`, a budget of 0) gets none, or an error: a model
that does not think is as it is, and for others the template says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tts.base.errors import CheckpointError, DatasetError
from tts.build.chat_template import TemplateFailed
from tts.build.thinking import Thinking, require_budget
from tts.build.tokenizer import LONG, Message, Tokenizer
from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.prompting import Models
from tts.prompting.chat import MessageLost, in_known_roles, inert_chat, require_messages
from tts.prompting.score_calls import score_calls
from tts.session.questions import as_problem

from ..call import Call
from ..openai.errors import bad_request, quoted
from ..openai.messages import ChatMessage
from ..openai.requests import ChatRequest, Request, TemplatedRequest, TokenizeRequest
from ..safety.filters import FilterChain

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}tts:here\N{OBJECT REPLACEMENT CHARACTER}"
"""Marks where a message ends that is to be continued; it never reaches the model."""
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="tokenise")
_FORM_THREADS = ThreadPoolExecutor(2, thread_name_prefix="forms")

T = TypeVar("T")


async def filtered(filters: FilterChain, texts: Sequence[str]) -> list[str]:
    """Prompts as they may go on; raises ContentBlocked."""
    if not filters.of_input:
        return list(texts)
    if sum(map(len, texts)) <= LONG:
        return [filters.prompt().whole(text) for text in texts]
    passed = []
    for text in texts:
        stream, parts = filters.prompt(), []
        for start in range(0, len(text), LONG):
            parts.append(stream.feed(text[start : start + LONG]))
            await asyncio.sleep(0)
        passed.append("".join(parts) + stream.end())
    return passed


async def tokenised(characters: int, work: Callable[[], T]) -> T:
    """The result of `work`, which reads so many characters; raises what it raises."""
    if characters <= LONG:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def form_read(work: Callable[[], T]) -> T:
    """The result of `work`, which reads a form: up to a second of Python, whatever its length."""
    return await asyncio.get_running_loop().run_in_executor(_FORM_THREADS, work)


def require_length(tokenizer: Tokenizer, context: int, *texts: str, field: str = "messages") -> int:
    """The characters of texts; ApiError, without reading them, where no context could hold them."""
    characters = sum(map(len, texts))
    if (over := characters - context * tokenizer.longest_token) > 0:
        raise bad_request(
            f"This model's maximum context length is {context} tokens. However, your {field} have "
            f"{characters:,} characters, {over:,} more than that many of its longest tokens. "
            f"Please reduce the length of the {field}.",
            field,
            "context_length_exceeded",
        )
    return characters


def prompt_text(tokenizer: Tokenizer, text: str, *, special: bool) -> str:
    """A prompt as it is tokenised; `special`: with the token that the model's texts begin with."""
    bos = tokenizer.special("bos_token")
    return bos + text if special and tokenizer.adds_bos and not text.startswith(bos) else text


def known_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Ids that a client gives, if the vocabulary has them."""
    size = tokenizer.vocab_size
    if wrong := [token for token in ids if not 0 <= token < size]:
        raise bad_request(
            f"The prompt holds the token id {wrong[0]}; the vocabulary is 0..{size - 1}.", "prompt"
        )
    return list(ids)


async def filter_messages(filters: FilterChain, messages: Sequence[ChatMessage]) -> None:
    """Replace each message by its filtered text; raises ContentBlocked."""
    if filters.of_input:
        passed = await filtered(filters, [message.text for message in messages])
        for message, text in zip(messages, passed, strict=True):
            message.content = text


def problem_of(messages: Sequence[ChatMessage]) -> Problem:
    """The question of a search, from a conversation that ends with the user's question."""
    if messages[-1].role != "user":
        raise bad_request(
            f"The conversation ends with a message of the role {messages[-1].role}: a search "
            "answers the last message, which must be the user's.",
            "messages",
        )
    try:
        return as_problem([message.plain() for message in messages], "solve")
    except DatasetError as error:
        raise bad_request(error.message, "messages") from None


def score_calls_of(
    models: Models, question: str, steps: Sequence[str], field: str = "messages"
) -> list[ScoreCall]:
    """One call for each step; raises ApiError for what the verifier cannot read."""
    try:
        return score_calls(models, question, steps)
    except DatasetError as error:
        raise bad_request(error.message, field, "context_length_exceeded") from None


async def search_prompt(
    call: Call[Request],
    models: Models,
    messages: Sequence[ChatMessage],
    variables: Mapping[str, Any],
) -> tuple[Problem, list[int]]:
    """The question of a search, as filters let it pass, and the generator's prompt for it."""
    service = call.service
    texts = (message.text for message in messages)
    characters = require_length(models.generator, service.generator.context, *texts)
    await filter_messages(service.filters, messages)
    problem = replace(problem_of(messages), chat_template_kwargs=variables)
    with refusals_of_template():
        prompt, _ = await tokenised(characters, partial(models.prompts, problem))
    return problem, prompt.tolist()


async def chat_prompt(call: Call[ChatRequest], models: Models) -> tuple[list[int], Thinking | None]:
    """The prompt of a chat without tools, as filters let it pass, and thinking that it ends in."""
    request, service, tokenizer = call.request, call.service, models.generator
    texts = (message.text for message in request.messages)
    characters = require_length(tokenizer, service.generator.context, *texts)
    await filter_messages(service.filters, request.messages)

    def read() -> tuple[list[int], Thinking | None]:
        text, thinking = chat_text(models, request)
        return service.generator.prompt_ids(text), thinking

    if characters > LONG:
        return await tokenised(characters, read)
    with refusals_of_template():
        turns, chat = _as_shown(tokenizer, request)
        kind = tokenizer, request.add_generation_prompt
        text = await service.generator.chat_text(kind, chat)
        text, thinking = _with_thinking(models, request, turns, chat, text)
    return await service.generator.text_ids(None, text), thinking


def chat_text(
    models: Models, request: ChatRequest | TokenizeRequest
) -> tuple[str, Thinking | None]:
    """A chat as the model reads it, and how it thinks if the text ends inside the thinking."""
    with refusals_of_template():
        turns, chat = _as_shown(models.generator, request)
        text = models.generator.chat(chat, generation_prompt=request.add_generation_prompt)
        return _with_thinking(models, request, turns, chat, text)


def _as_shown(
    tokenizer: Tokenizer, request: ChatRequest | TokenizeRequest
) -> tuple[list[dict[str, Any]], Sequence[Message]]:
    turns = inert_chat(tokenizer, [message.plain() for message in request.messages or ()])
    chat: Sequence[Message] = turns
    if request.continue_final_message:
        if request.add_generation_prompt:
            raise bad_request(
                "continue_final_message and add_generation_prompt exclude each other: the first "
                "goes on with the last message, the second begins another.",
                "continue_final_message",
            )
        chat = [*turns[:-1], {**turns[-1], "content": turns[-1]["content"] + _MARK}]
    return turns, in_known_roles(tokenizer, chat)


def _with_thinking(
    models: Models,
    request: ChatRequest | TokenizeRequest,
    turns: Sequence[Message],
    chat: Sequence[Message],
    text: str,
) -> tuple[str, Thinking | None]:
    """The prompt of a rendered chat, and thinking that it ends in."""
    continues = request.continue_final_message
    if continues:
        text, mark, _ = text.rpartition(_MARK)
        if not mark:
            raise bad_request(
                "The model's chat template changes the last message, so it cannot be continued.",
                "continue_final_message",
            )
    require_messages(models.generator, turns, text)
    if not request.add_generation_prompt:
        return text, models.continued_thinking(turns) if continues else None
    thinking = models.thinking_in(chat)
    return thinking.prompt(text) if thinking else text, thinking


@contextmanager
def refusals_of_template() -> Iterator[None]:
    """Errors that tell what the template does or says, without the file in which it lies."""
    try:
        yield
    except CheckpointError as error:
        if isinstance(error, MessageLost):
            what = f"{error.what}."
        elif isinstance(error.__cause__, TemplateFailed):
            what = f"refuses this: {error.__cause__}"
        else:
            what = "is missing, or cannot be read: send prompts to /v1/completions."
        raise bad_request(f"The model's chat template {what}", "messages") from None


MAX_VARIABLES = 4_000
"""Characters of the variables of a request: each set of them is kept."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's efforts: thinking is on, for a template that knows no more."""
_OFF = {"enable_thinking": False, "reasoning_effort": "none"}
"""Variables with the values by which templates switch thinking off."""


def template_variables(
    models: Models, request: TemplatedRequest | TokenizeRequest
) -> dict[str, Any]:
    """The variables of the chat template that a request sets, all of them read; raises ApiError."""
    switches = ((name, getattr(request, name)) for name in _OFF)
    fields: dict[str, Any] = {name: value for name, value in switches if value is not None}
    variables = {**request.chat_template_kwargs, **fields}
    if not variables and request.thinking_token_budget != 0:
        return {}
    if len(json.dumps(variables)) > MAX_VARIABLES:
        raise bad_request(
            f"The variables of the chat template are longer than {MAX_VARIABLES:,} characters.",
            "chat_template_kwargs",
        )
    names = _template_names(models)
    off = _off(variables, request.thinking_token_budget)
    if off:
        variables = {
            name: value
            for name, value in variables.items()
            if name in names or not _is_off(name, value)
        }
        switch = next((name for name in _OFF if name in names), None)
        if models.thinking and switch:
            variables[switch] = _OFF[switch]
    elif request.reasoning_effort in EFFORTS and names & _OFF.keys() == {"enable_thinking"}:
        del variables["reasoning_effort"]
        variables.setdefault("enable_thinking", True)
    says = f"Its chat template reads: {', '.join(sorted(names)) or 'no variables'}."
    if wrong := next((name for name in variables if name not in names), None):
        param = wrong if wrong in fields else "chat_template_kwargs"
        raise bad_request(f"This model does not know {quoted(wrong)}. {says}", param)
    try:
        thinking = models.asked_with(variables).thinking
    except CheckpointError as error:  # without the folder in which the template lies
        message = error.message.replace(f" of {models.generator.checkpoint}", "")
        raise bad_request(message, next(iter(fields), "chat_template_kwargs")) from None
    if off and thinking:
        raise bad_request(f"{off}: this model's thinking cannot be switched off. {says}", off)
    return variables


def _template_names(models: Models) -> frozenset[str]:
    try:
        return models.generator.chat_variables
    except CheckpointError:  # no template at all: whoever renders it says so
        return frozenset()


def _off(variables: dict[str, Any], budget: int | None) -> str | None:
    if budget == 0:
        return "thinking_token_budget"
    return next((name for name in reversed(_OFF) if _is_off(name, variables.get(name))), None)


def _is_off(name: str, value: Any) -> bool:
    return name in _OFF and value == _OFF[name]


def with_budget(
    thinking: Thinking | None, budget: int | None, param: str = "thinking_token_budget"
) -> Thinking | None:
    """Thinking of at most so many tokens, if a request says how many; raises ApiError."""
    if thinking is None or not budget:
        return thinking
    try:
        require_budget(param, budget, len(thinking.closing_ids))
    except CheckpointError as error:
        raise bad_request(error.message, param) from None
    return replace(thinking, budget=budget)
