"""The generator's prompt as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorRole
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


def generator_prompt(
    tokenizer: Tokenizer, spec: GeneratorRole, question: str, history: Sequence[Turn] = ()
) -> Ids:
    """Token ids of the chat prompt that asks `question` after `history`, int32 [length].

    The deployment's system prompt comes first unless the history has one of its own. Raises
    CheckpointError as `chat_prompt` does.
    """
    turns = [*history, Turn("user", question)]
    if spec.system_prompt and all(turn.role != "system" for turn in turns):
        turns.insert(0, Turn("system", spec.system_prompt))
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return chat_prompt(tokenizer, messages)


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> Ids:
    """Token ids of a chat to which the model is to answer, int32 [length].

    Raises CheckpointError if the chat template fails, or does not carry every message.
    """
    text = tokenizer.chat(messages, generation_prompt=True)
    require_messages(tokenizer, messages, text)
    return np.asarray(tokenizer.encode(text), dtype=np.int32)


def require_messages(tokenizer: Tokenizer, messages: Sequence[Message], text: str) -> None:
    """Raise MessageLost if a rendered chat does not carry every message in its turn."""
    if (lost := _lost(messages, text)) is not None:
        last = lost == len(messages) - 1
        which = "the last message" if last else f"message {lost + 1} of {len(messages)}"
        what = "the question" if last else f"what the {messages[lost]['role']} has said there"
        raise MessageLost(
            tokenizer.checkpoint,
            f"drops or changes {which}, so the model would not see {what}",
        )


def _lost(messages: Sequence[Message], text: str) -> int | None:
    """The first message that a rendered chat does not carry in its turn; None if it carries all."""
    place = 0
    for number, message in enumerate(messages):
        content = message["content"].strip()  # as templates do, Llama's among them
        if message["role"] == "system":  # Mistral's has it in front of the last question
            if content not in text:
                return number
            continue
        if message["role"] == "assistant":  # of earlier answers Qwen's drops the reasoning
            content = content.rpartition(_REASONED)[2].strip()
        found = text.find(content, place)
        if found < 0:
            return number
        place = found + len(content)
    return None
