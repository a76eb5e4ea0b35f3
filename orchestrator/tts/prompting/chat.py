"""The generator's prompt as token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorSpec
from tts.build.tokenizer import Ids, Message, Tokenizer
from tts.problem import Turn


def generator_prompt(
    tokenizer: Tokenizer, spec: GeneratorSpec, question: str, history: Sequence[Turn] = ()
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

    Raises CheckpointError if the chat template fails, or does not carry the last message.
    """
    text = tokenizer.chat(messages, generation_prompt=True)
    question = messages[-1]["content"] if messages else ""
    if question.strip() not in text:  # templates strip it, as Llama's does
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} drops or changes the last message, so "
            "the model would not see the question.",
            hint="Use the chat template that the checkpoint was published with.",
        )
    return np.asarray(tokenizer.encode(text), dtype=np.int32)
