"""The generator's prompt as token ids.

What messages say is text: control tokens that they spell are none, but for the marks of thinking in
the assistant's, which are the template's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tts.base.errors import CheckpointError
from tts.build.chat_template import TemplateFailed
from tts.build.spec import GeneratorRole
from tts.build.thinking import Thinking, own_marks
from tts.build.thinking_families import without_switches
from tts.build.tokenizer import Ids, Message, Tokenizer
from tts.problem import Turn

_REASONED = "</think>"


class MessageLost(CheckpointError):
    """A chat template drops or changes a message."""

    def __init__(self, checkpoint: Path, what: str) -> None:
        """`what` goes on from "The chat template", and names no file."""
        super().__init__(
            f"The chat template of {checkpoint} {what}.",
            hint="Use the chat template that the checkpoint was published with.",
        )
        self.what = what


def generator_chat(
    spec: GeneratorRole, question: str, history: Sequence[Turn] = ()
) -> list[Message]:
    """The chat that asks `question`; the system prompt comes first unless `history` has its own."""
    turns = [*history, Turn("user", question)]
    if spec.system_prompt and all(turn.role != "system" for turn in turns):
        turns.insert(0, Turn("system", spec.system_prompt))
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def chat_prompt(
    tokenizer: Tokenizer, messages: Sequence[Message], thinking: Thinking | None = None
) -> Ids:
    """Token ids of a chat to which the model is to answer, int32 [length].

    They end inside the thinking of a model that thinks.
    Raises CheckpointError if the chat template fails, or does not carry every message.
    """
    messages = inert_chat(tokenizer, messages)
    text = tokenizer.chat(in_known_roles(tokenizer, messages), generation_prompt=True)
    require_messages(tokenizer, messages, text)
    if thinking:
        text = thinking.prompt(text)
    return np.asarray(tokenizer.encode(text), dtype=np.int32)


def shown_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> Sequence[Message]:
    """A chat as its template is given it: inert, and in the roles that it shows."""
    return in_known_roles(tokenizer, inert_chat(tokenizer, messages))


def inert_chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A chat whose texts spell no control tokens (see `Tokenizer.inert`)."""
    return [
        inert_texts(
            tokenizer, message, own_marks(tokenizer) if message["role"] == "assistant" else ()
        )
        for message in messages
    ]


def inert_texts(tokenizer: Tokenizer, value: Any, keep: Collection[str] = ()) -> Any:
    """A value with every text in it made inert."""
    inner = partial(inert_texts, tokenizer, keep=keep)
    match value:
        case str():
            return tokenizer.inert(value, keep=keep)
        case dict():
            return {name: inner(each) for name, each in value.items()}
        case list():
            return list(map(inner, value))
    return value


def in_known_roles(tokenizer: Tokenizer, messages: Sequence[Message]) -> Sequence[Message]:
    """A chat as its template can show it.

    Where the template has no system role, what the system says stands in front of the user's next
    message, with an empty line between.
    """
    if all(each["role"] != "system" for each in messages) or takes_system(tokenizer):
        return messages
    chat: list[Message] = []
    instructions: list[str] = []
    for message in messages:
        if message["role"] == "system":
            instructions += filter(None, (message["content"].strip(),))
            continue
        if message["role"] == "user" and instructions:
            message = {**message, "content": "\n\n".join((*instructions, message["content"]))}
            instructions = []
        chat.append(message)
    if instructions:
        chat.append({"role": "user", "content": "\n\n".join(instructions)})
    return chat


@lru_cache(maxsize=16)
def takes_system(tokenizer: Tokenizer) -> bool:
    """Whether the chat template shows the model a system message."""
    messages = [{"role": role, "content": f"the {role}"} for role in ("system", "user")]
    try:
        require_messages(tokenizer, messages, tokenizer.chat(messages, generation_prompt=True))
    except CheckpointError as error:
        failed = error.__cause__
        if isinstance(failed, TemplateFailed) and failed.__cause__:  # for want of time or memory
            raise
        return False
    return True


def require_messages(tokenizer: Tokenizer, messages: Sequence[Message], text: str) -> None:
    """Raise MessageLost if a rendered chat does not carry every message in its turn."""
    if (place := _first_missing(messages, text, tokenizer.chat_template)) is not None:
        last = place == len(messages) - 1
        which = "the last message" if last else f"message {place + 1} of {len(messages)}"
        what = "the question" if last else f"what the {messages[place]['role']} has said there"
        raise MessageLost(
            tokenizer.checkpoint,
            f"drops or changes {which}, so the model would not see {what}",
        )


def _first_missing(messages: Sequence[Message], text: str, template: str) -> int | None:
    """The first message not in its turn in a rendered chat, words that switch thinking aside."""
    place = 0
    for number, message in enumerate(messages):
        content = message["content"].strip()  # as templates do, Llama's among them
        if message["role"] == "assistant":  # of earlier answers Qwen's drops the reasoning
            content = content.rpartition(_REASONED)[2].strip()
        in_order = message["role"] != "system"  # Mistral's is in front of the last question
        for form in (content, without_switches(content, template).strip()):
            if (begin := text.find(form, place * in_order)) >= 0:
                place = begin + len(form) if in_order else place
                break
        else:
            return number
    return None
