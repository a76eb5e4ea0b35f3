"""Samples of the generator, outside a search."""

from __future__ import annotations

from collections.abc import Sequence

from tts.base.errors import DatasetError
from tts.build.tokenizer import Message
from tts.endpoints.base import GenerateCall, Generator
from tts.endpoints.together import together
from tts.prompting import Models
from tts.prompting.chat import chat_prompt, generator_chat
from tts.search import node_seed

from .questions import check_question, is_message


async def generate(
    models: Models,
    generator: Generator,
    prompt: str | Sequence[Message],
    *,
    n: int,
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
) -> list[str]:
    """Texts of n samples; raises DatasetError if the prompt leaves no room for output."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        check_question(prompt, "The prompt")
    elif not (prompt and all(map(is_message, prompt))):
        raise DatasetError(
            f"The prompt is {prompt!r:.200}, which is no chat.",
            hint='Give a list of messages: [{"role": "user", "content": "..."}].',
        )
    spec = models.deployment.generator
    chat = generator_chat(spec, prompt) if isinstance(prompt, str) else prompt
    ids = chat_prompt(models.generator, chat)
    limit = min(max_tokens, spec.max_seq_len - len(ids))
    if limit < 1:
        raise DatasetError(
            f"The prompt is {len(ids)} tokens long; the generator's context holds "
            f"{spec.max_seq_len}, prompt and output together (generator.max_seq_len).",
            hint="Shorten the prompt, or raise generator.max_seq_len in the deployment.",
        )
    consecutive = models.deployment.consecutive_seeds
    seeds = (node_seed(seed, "generate", (at,), consecutive=consecutive) for at in range(n))
    calls = (GenerateCall(ids, limit, each, temperature, top_p, False) for each in seeds)
    samples = await together(generator.generate(call) for call in calls)
    return [
        "".join(thought.text for thought in models.thoughts(sample, truncated=False, whole=True))
        for sample in samples
    ]
