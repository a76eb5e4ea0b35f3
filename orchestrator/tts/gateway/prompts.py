"""Token ids of prompts and chats, as the API's fields say; raises ApiError."""

from __future__ import annotations

from collections.abc import Sequence

from tts.build.errors import CheckpointError
from tts.build.tokenizer import Tokenizer

from .chat_shapes import ChatShapes
from .openai.errors import bad_request
from .openai.requests import ChatMessage

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}tts:here\N{OBJECT REPLACEMENT CHARACTER}"
"""Marks where a message ends that is to be continued; it never reaches the model."""


def require_length(tokenizer: Tokenizer, context: int, *texts: str) -> None:
    """Refuse texts that cannot fit into a context, before they are read.

    No token has more characters than the longest in the vocabulary. Reading megabytes to count
    their tokens would take seconds, in which nobody else is served.
    """
    characters = sum(map(len, texts))
    if characters > context * tokenizer.longest_token:
        raise bad_request(
            f"The prompt has {characters:,} characters, which are more than the {context:,} tokens "
            "of the context.",
            "messages",
            "context_length_exceeded",
        )


def text_ids(tokenizer: Tokenizer, text: str, *, special: bool) -> list[int]:
    """Ids of a text; with `special` those around it, too, that the model's texts begin with."""
    bos = tokenizer.special("bos_token")
    if special and tokenizer.adds_bos and not text.startswith(bos):
        text = bos + text
    return tokenizer.encode(text)


def known_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Ids that a client gives, if the vocabulary has them."""
    size = tokenizer.vocab_size
    if wrong := [token for token in ids if not 0 <= token < size]:
        raise bad_request(
            f"The prompt holds the token id {wrong[0]}; the vocabulary is 0..{size - 1}.", "prompt"
        )
    return list(ids)


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
        raise bad_request(f"The model's chat template refuses this: {error.message}") from None
    if continues:
        text, mark, _ = text.rpartition(_MARK)
        if not mark:
            raise bad_request(
                "The model's chat template changes the last message, so it cannot be continued.",
                "continue_final_message",
            )
    return text
