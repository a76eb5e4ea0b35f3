"""Plain generation as a response: whole, or token by token."""

from __future__ import annotations

from asyncio import timeout
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..call import Call
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, TokenLogs, usage_of
from ..openai.errors import ApiError, bad_request
from ..openai.requests import Request
from ..output.generation import Delta, Sampling
from ..output.sample_text import SampleText
from ..tools.votes import canonical
from .respond import Response
from .tool_turns import ToolTurn, reading_calls


async def answer(
    call: Call[Request], encoder: Encoder, sampling: Sampling, turn: ToolTurn | None = None
) -> None:
    """Generate n choices for each prompt, and respond; `turn`: how calls of tools stand in them."""
    service, request, record = call.service, call.request, call.record
    prompts, generator = sampling.prompts, service.generator
    if sampling.logs is not None and service.filters.of_output:
        raise bad_request(
            "logprobs are not given here: answers are filtered, and they would tell what was.",
            "logprobs",
            "unsupported_parameter",
        )
    behind = generator.models.generator.encode(sampling.lead)
    limits = [generator.room([*prompt, *behind], request.limit) for prompt in prompts]
    charged = call.exchange.key is not None
    generate_calls = generator.calls(request, sampling, limits, charged=charged)
    samples = [
        generator.sample(index, each, request, sampling)
        for index, each in enumerate(generate_calls)
    ]
    prompt_tokens = sum(map(len, prompts))
    call.admit(sum(limits) * request.n + prompt_tokens)
    record.prompt_tokens = prompt_tokens
    if service.recorder.keeps_prompts:
        record.prompt = "\n\n".join(map(generator.models.generator.decode, prompts))
    deltas = generator.merged(generate_calls, samples, record, sampling)
    if turn:
        deltas = reading_calls(deltas, turn, len(samples))
    limit_s = service.settings.deadline_s
    try:
        async with timeout(limit_s):
            await _send(call, Response(call, encoder), deltas, samples, logs=sampling.logs)
    except TimeoutError:
        raise ApiError(
            504, f"The answer was not complete within {limit_s:g} s.", code="deadline_exceeded"
        ) from None


async def _send(
    call: Call[Request],
    response: Response,
    deltas: AsyncGenerator[Delta, None],
    samples: Sequence[SampleText],
    *,
    logs: int | None,
) -> None:
    """Send what clients are told of deltas.

    The record has the tokens so far also of an answer that is left before its end.
    """
    record, keeps_answer = call.record, call.service.recorder.keeps_prompts
    texts, tool_calls = [""] * len(samples), list[str]()
    token_texts = [] if logs is None else call.service.generator.models.generator.token_texts
    begins = [0] * len(samples)
    unopened = set(range(len(samples)))
    running = len(samples)
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                index = delta.sample.index
                if keeps_answer:
                    texts[index] += delta.reasoning + delta.text
                    tool_calls += map(canonical, delta.calls)
                part = AnswerPart(
                    index, delta.text or None, delta.reasoning, None, delta.calls, delta.finish
                )
                if logs is not None:
                    part.logs = _token_logs(delta, token_texts, begins[index])
                    begins[index] += sum(map(len, part.logs.tokens))
                running -= delta.finish is not None
                if not running:
                    thought = _thought(samples)
                    tokens = _tokens(samples) - (thought or 0)
                    usage = usage_of(record.prompt_tokens, tokens, thought)
                    part.end = AnswerEnd(usage, {"gateway_ms": record.gateway_ms()})
                news = delta.text or delta.reasoning or delta.ids or delta.calls or delta.finish
                if news or index in unopened:
                    await response.send(part)
                unopened.discard(index)
    finally:
        record.answer_tokens = _tokens(samples)
        if keeps_answer:
            record.answer = "\n\n".join([*texts, *tool_calls])


def _tokens(samples: Sequence[SampleText]) -> int:
    return sum(sample.tokens for sample in samples)


def _thought(samples: Sequence[SampleText]) -> int | None:
    """Tokens of the thinking; None for samples without."""
    if not any(sample.thinking for sample in samples):
        return None
    return sum(sample.thought_tokens for sample in samples)


def _token_logs(delta: Delta, texts: Sequence[str], begin: int) -> TokenLogs:
    """The log-probabilities of a delta, with the texts of its tokens."""
    top = [[(texts[token], log_prob) for token, log_prob in row] for row in delta.top]
    return TokenLogs([texts[token] for token in delta.ids], delta.log_probs, top, begin)
