"""The generator's prompt as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from tts.build.chat_template import TemplateFailed
from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorRole
from tts.build.thinking import Thinking
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
    tokenizer: Tokenizer,
    spec: GeneratorRole,
    question: str,
    history: Sequence[Turn] = (),
    thinking: Thinking | None = None,
) -> Ids:
    """Token ids of the chat prompt that asks `question` after `history`, int32 [length].

    The deployment's system prompt comes first unless the history has one of its own. Raises
    CheckpointError as `chat_prompt` does.
    """
    turns = [*history, Turn("user", question)]
    if spec.system_prompt and all(turn.role != "system" for turn in turns):
        turns.insert(0, Turn("system", spec.system_prompt))
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return chat_prompt(tokenizer, messages, thinking)


def chat_prompt(
    tokenizer: Tokenizer, messages: Sequence[Message], thinking: Thinking | None = None
) -> Ids:
    """Token ids of a chat to which the model is to answer, int32 [length].

    They end inside the thinking of a model that thinks.
    Raises CheckpointError if the chat template fails, or does not carry every message.
    """
    text = tokenizer.chat(in_known_roles(tokenizer, messages), generation_prompt=True)
    require_messages(tokenizer, messages, text)
    if thinking:
        text = thinking.prompt(text)
    return np.asarray(tokenizer.encode(text), dtype=np.int32)


def in_known_roles(tokenizer: Tokenizer, messages: Sequence[Message]) -> Sequence[Message]:
    """A chat as its template can show it.

    Where the template has no system role, what the system says stands in front of the user's next
    message, with an empty line between.
    """
    if all(each["role"] != "system" for each in messages) or takes_system(tokenizer):
        return messages
    found: list[Message] = []
    said: list[str] = []
    for message in messages:
        if message["role"] == "system":
            said += filter(None, (message["content"].strip(),))
            continue
        if message["role"] == "user" and said:
            message = {**message, "content": "\n\n".join((*said, message["content"]))}
            said = []
        found.append(message)
    return [*found, {"role": "user", "content": "\n\n".join(said)}] if said else found


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
