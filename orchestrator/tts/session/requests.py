"""Requests that are part of no search: samples of the generator, scores of a given chain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tts.build.errors import DatasetError
from tts.build.tokenizer import Message
from tts.endpoints.base import GenerateCall, Generator, Verifier
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.prompting.chat import chat_prompt, generator_prompt
from tts.search import NodePath, Stop, Thought, node_seed, quantise

from .questions import check_question

T = TypeVar("T")


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
    """Texts of n samples; raises DatasetError for a prompt that leaves no room for output."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        check_question(prompt, "The prompt")
    elif not (prompt and all(_is_message(each) for each in prompt)):
        raise DatasetError(
            f"The prompt is {prompt!r:.200}, which is no chat.",
            hint='Give a list of messages: [{"role": "user", "content": "..."}].',
        )
    spec = models.deployment.generator
    ids = (
        generator_prompt(models.generator, spec, prompt)
        if isinstance(prompt, str)
        else chat_prompt(models.generator, prompt)
    )
    limit = min(max_tokens, spec.max_seq_len - len(ids))
    if limit < 1:
        raise DatasetError(
            f"The prompt is {len(ids)} tokens long; the generator's context holds "
            f"{spec.max_seq_len}, prompt and output together (generator.max_seq_len).",
            hint="Shorten the prompt, or raise generator.max_seq_len in the deployment.",
        )
    calls = (
        GenerateCall(ids, limit, node_seed(seed, "generate", (sample,)), temperature, top_p, False)
        for sample in range(n)
    )
    samples = await _all(generator.generate(call) for call in calls)
    return [
        "".join(
            thought.text
            for thought in models.thoughts(sample, truncated=len(sample) >= limit, whole=True)
        )
        for sample in samples
    ]


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(
        isinstance(message.get(name), str) for name in ("role", "content")
    )


async def score(
    models: Models, verifier: Verifier, question: str, steps: Sequence[str]
) -> list[float]:
    """The score of each step after those before it; raises DatasetError if they are too long."""
    check_question(question)
    if isinstance(steps, str) or not isinstance(steps, Sequence):
        raise DatasetError(f"The steps are {steps!r:.200}; they must be a list of texts.")
    for place, step in enumerate(steps, start=1):
        check_question(step, f"Step {place}")
    context = Context.of(models, Problem("score", question))
    calls = []
    node: NodePath = ()
    for step in steps:
        node = (*node, 0)
        context.add(node, Thought((), step, Stop.STEP))
        if not context.can_be_scored(node):
            raise DatasetError(
                f"The first {len(node)} steps are too long for the verifier, whose max_seq_len is "
                f"{models.deployment.verifier.max_seq_len}.",
                hint="Score fewer steps, or raise verifier.max_seq_len in the deployment.",
            )
        calls.append(context.score_call(node))
    results = await _all(verifier.score(call) for call in calls)
    return [quantise(result.score) for result in results]


async def _all(running: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Everything at a time, in order; the first failure cancels the others, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
