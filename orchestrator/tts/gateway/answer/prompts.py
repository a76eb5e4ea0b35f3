"""Prompts and chats: filtered, and as token ids. Functions raise ApiError for what cannot be used.

Streams of others go on while a long text is read. Filters work on the event loop, a piece at a
time, with a turn for everything else in between. A tokenizer lets go of the interpreter lock for
long texts, so it works in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from tts.base.errors import CheckpointError, DatasetError
from tts.build.chat_template import TemplateFailed
from tts.build.control_tokens import plain as unmarked
from tts.build.thinking import Thinking
from tts.build.tokenizer import LONG, Ids, Message, Tokenizer
from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.prompting import Models
from tts.prompting.chat import (
    MessageLost,
    in_known_roles,
    inert_chat,
    inert_texts,
    require_messages,
    shown_chat,
)
from tts.prompting.score_calls import score_calls
from tts.session.questions import as_problem

from ..openai.errors import ApiError, bad_request
from ..openai.messages import ChatMessage, Tool
from ..openai.requests import ChatRequest, TokenizeRequest
from ..safety import FilterChain
from ..tools.conversation import check_turns, for_template, in_text, lost_of
from ..tools.forced import plain_tools
from ..tools.forms import ToolForm

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
        return list(map(filters.input, texts))
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
    """The characters of texts that may fit into a context; those that cannot are not read.

    No token has more characters than the longest in the vocabulary. Reading megabytes to count
    their tokens would take seconds.
    """
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


async def search_prompt(models: Models, problem: Problem, characters: int) -> Ids:
    """The generator's prompt of a search, int32 [length], as the session will render it."""
    try:
        prompt, _ = await tokenised(characters, partial(models.prompts, problem))
    except CheckpointError as error:
        raise _refused_by_template(error) from None
    return prompt


def chat_text(
    models: Models, request: ChatRequest | TokenizeRequest
) -> tuple[str, Thinking | None]:
    """A chat as the model reads it; if its last message goes on, the text ends there.

    With it how the model thinks, if the text ends inside the thinking.
    """
    tokenizer = models.generator
    asked = inert_chat(tokenizer, [message.plain() for message in request.messages or ()])
    shown: Sequence[Message] = asked
    continues = request.continue_final_message
    if continues:
        if request.add_generation_prompt:
            raise bad_request(
                "continue_final_message and add_generation_prompt exclude each other: the first "
                "goes on with the last message, the second begins another.",
                "continue_final_message",
            )
        shown = [*asked[:-1], {**asked[-1], "content": asked[-1]["content"] + _MARK}]
    try:
        shown = in_known_roles(tokenizer, shown)
        text = tokenizer.chat(shown, generation_prompt=request.add_generation_prompt)
        if continues:
            text, mark, _ = text.rpartition(_MARK)
            if not mark:
                raise bad_request(
                    "The model's chat template changes the last message, so it cannot be "
                    "continued.",
                    "continue_final_message",
                )
        require_messages(tokenizer, asked, text)
        if not request.add_generation_prompt:
            goes_on = models.continued_thinking(asked) if continues else None
            return text, goes_on
        thinking = models.thinking_in(shown)
    except CheckpointError as error:
        raise _refused_by_template(error) from None
    return thinking.prompt(text) if thinking else text, thinking


def tool_chat_text(
    models: Models,
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    form: ToolForm,
) -> tuple[str, Thinking | None]:
    """A chat with tools, or with calls of them, to which the model is to answer.

    With it how the model thinks, if the text ends inside the thinking.
    """
    tokenizer = models.generator
    check_turns(messages)
    chat = for_template(messages) if form.in_template else in_text(messages, tools)
    listed = [tool.plain() for tool in tools] if form.in_template else []
    listed = inert_texts(tokenizer, listed)
    try:
        turns = shown_chat(tokenizer, chat)
        text = tokenizer.chat(turns, generation_prompt=True, tools=listed)
        thinking = models.thinking_in(turns, listed)
    except CheckpointError as error:
        raise _refused_by_template(error) from None
    if (lost := lost_of(messages, tools, unmarked(text))) is not None:
        raise bad_request(f"The model's chat template drops or changes {lost}.", "messages")
    return thinking.prompt(text) if thinking else text, thinking


async def filter_tools(
    filters: FilterChain, messages: Sequence[ChatMessage], tools: Sequence[Tool]
) -> None:
    """Raise ApiError, or ContentBlocked, where the filters would change tools or earlier calls."""
    if not filters.of_input:
        return
    texts = [plain_tools(tools)]
    texts += [call.function.arguments for each in messages for call in each.tool_calls or ()]
    if await filtered(filters, texts) != texts:
        raise bad_request(
            "The content filters would change the tools, or the arguments of a call.",
            "tools",
            "content_filter",
        )


def _refused_by_template(error: CheckpointError) -> ApiError:
    """What the template does or says, without the file in which it lies."""
    if isinstance(error, MessageLost):
        what = f"{error.what}."
    elif isinstance(error.__cause__, TemplateFailed):
        what = f"refuses this: {error.__cause__}"
    else:
        what = "is missing, or cannot be read: send prompts to /v1/completions."
    return bad_request(f"The model's chat template {what}", "messages")
