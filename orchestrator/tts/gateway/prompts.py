"""Token ids of prompts and chats, as the API's fields say; raises ApiError."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tts.build.errors import CheckpointError, DatasetError
from tts.build.tokenizer import Ids, Tokenizer
from tts.problem import Problem
from tts.prompting import Models
from tts.session.questions import as_problem

from .chat_shapes import ChatShapes
from .long_texts import filtered, tokenised
from .openai.errors import ApiError, bad_request
from .openai.requests import ChatMessage
from .safety import FilterChain

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}tts:here\N{OBJECT REPLACEMENT CHARACTER}"
"""Marks where a message ends that is to be continued; it never reaches the model."""


def require_length(tokenizer: Tokenizer, context: int, *texts: str) -> int:
    """The characters of texts that may fit into a context; those that cannot are not read.

    No token has more characters than the longest in the vocabulary. Reading megabytes to count
    their tokens would take seconds.
    """
    characters = sum(map(len, texts))
    if (over := characters - context * tokenizer.longest_token) > 0:
        raise bad_request(
            f"The prompt has {characters:,} characters, {over:,} more than a context of "
            f"{context:,} tokens can hold of the longest tokens.",
            "messages",
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
    """Put what the filters let pass of each message in its place; raises ContentBlocked."""
    passed = await filtered(filters, [message.text for message in messages])
    for message, text in zip(messages, passed, strict=True):
        message.content = text


def problem_of(messages: Sequence[ChatMessage]) -> Problem:
    """What a search is asked by a conversation that ends with the user's question."""
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


async def search_prompt(models: Models, problem: Problem, characters: int) -> Ids:
    """The generator's prompt of a search, int32 [length], as the session will render it."""
    try:
        prompt, _ = await tokenised(characters, partial(models.prompts, problem))
    except CheckpointError as error:
        raise _refused_by_template(error) from None
    return prompt


def chat_text(
    chats: ChatShapes,
    messages: Sequence[ChatMessage],
    *,
    generation_prompt: bool,
    continues: bool,
) -> str:
    """A chat as the model reads it; `continues`: its last message goes on, and ends here."""
    plain = [message.plain() for message in messages]
    if continues:
        if generation_prompt:
            raise bad_request(
                "continue_final_message and add_generation_prompt exclude each other: the first "
                "goes on with the last message, the second begins another.",
                "continue_final_message",
            )
        plain[-1] = {**plain[-1], "content": plain[-1]["content"] + _MARK}
    try:
        text = chats.render(plain, generation_prompt=generation_prompt)
    except CheckpointError as error:
        raise _refused_by_template(error) from None
    if continues:
        text, mark, _ = text.rpartition(_MARK)
        if not mark:
            raise bad_request(
                "The model's chat template changes the last message, so it cannot be continued.",
                "continue_final_message",
            )
    return text


def _refused_by_template(error: CheckpointError) -> ApiError:
    """Says what the template says, and not where it lies."""
    said = error.__cause__ or "the model would not see the last message as it is"
    return bad_request(f"The model's chat template refuses this: {said}", "messages")
