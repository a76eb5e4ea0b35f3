"""The generator's prompt as token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorSpec
from tts.build.tokenizer import Ids, Message, Tokenizer


def generator_prompt(tokenizer: Tokenizer, spec: GeneratorSpec, question: str) -> Ids:
    """Token ids of the chat prompt that asks `question`, int32 [length]."""
    system = [{"role": "system", "content": spec.system_prompt}] if spec.system_prompt else []
    return chat_prompt(tokenizer, [*system, {"role": "user", "content": question}])


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
