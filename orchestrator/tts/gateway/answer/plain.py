"""Plain generation as a response: whole, or token by token."""

from __future__ import annotations

from asyncio import timeout
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tts.build.thinking import Thinking
from tts.engines.wire import Guide

from ..exchange import Exchange
from ..observability import ServedRequest
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, TokenLogs, usage_of
from ..openai.errors import ApiError, bad_request
from ..openai.requests import Request
from ..output.generation import Delta
from ..output.sample_text import SampleText
from ..service import Service, admit
from ..tools.votes import canonical
from .respond import respond
from .tool_turns import ToolTurn, reading_calls


async def answer(
    service: Service,
    exchange: Exchange,
    request: Request,
    prompts: Sequence[list[int]],
    encoder: Encoder,
    *,
    key: str,
    logs: int | None = None,
    echo: bool = False,
    guide: Guide | None = None,
    turn: ToolTurn | None = None,
    thinking: Thinking | None = None,
) -> None:
    """Generate n choices for each prompt, and respond.

    `key` names the conversation, which stays on one replica. `logs`: with log-probabilities, and
    those of so many of the likeliest tokens. `echo`: each choice begins with its prompt. `guide` is
    the grammar that outputs follow, `turn` how calls of tools stand in them, `thinking` how they
    begin where prompts end inside it.
    """
    if logs is not None and service.filters.of_output:
        raise bad_request(
            "logprobs are not given here: answers are filtered, and they would tell what was.",
            "logprobs",
            "unsupported_parameter",
        )
    generator = service.generator
    lead = turn.prefix if turn and thinking else ""
    behind = generator.models.generator.encode(lead)
    limits = [generator.room([*prompt, *behind], request.limit) for prompt in prompts]
    calls = generator.calls(
        prompts,
        request,
        limits,
        logs=logs,
        guide=guide,
        charged=exchange.key is not None,
    )
    marks = turn.marks if turn else None
    samples = [
        generator.sample(index, call, request, marks, thinking=thinking, lead=lead)
        for index, call in enumerate(calls)
    ]
    admit(service, exchange, sum(limits) * request.n + sum(map(len, prompts)), search=False)
    exchange.record.prompt_tokens = sum(map(len, prompts))
    if service.recorder.keeps_prompts:
        tokenizer = generator.models.generator
        exchange.record.prompt = "\n\n".join(tokenizer.decode(prompt) for prompt in prompts)
    deltas = generator.merged(calls, samples, exchange.record, key, echo=echo)
    if turn:
        deltas = reading_calls(deltas, turn, len(samples))
    parts = _parts(service, exchange.record, deltas, samples, logs=logs is not None)
    limit_s = service.settings.deadline_s
    try:
        async with timeout(limit_s):
            await respond(exchange, encoder, parts, stream=request.stream)
    except TimeoutError:
        raise ApiError(
            504, f"The answer was not complete within {limit_s:g} s.", code="deadline_exceeded"
        ) from None


async def _parts(
    service: Service,
    record: ServedRequest,
    deltas: AsyncGenerator[Delta, None],
    samples: Sequence[SampleText],
    *,
    logs: bool,
) -> AsyncGenerator[AnswerPart, None]:
    """What clients are told of deltas.

    The record has the tokens so far also of an answer that is left before its end.
    """
    keeps_answer = service.recorder.keeps_prompts
    texts, called = [""] * len(samples), list[str]()
    token_texts = service.generator.models.generator.token_texts if logs else []
    begins = [0] * len(samples)
    begun: set[int] = set()
    running = len(samples)
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                index = delta.sample.index
                if keeps_answer:
                    texts[index] += delta.reasoning + delta.text
                    called += map(canonical, delta.calls)
                part = AnswerPart(
                    index, delta.text or None, delta.reasoning, None, delta.calls, delta.finish
                )
                if logs:
                    part.logs = _named_tokens(delta, token_texts, begins[index])
                    begins[index] += sum(map(len, part.logs.tokens))
                running -= delta.finish is not None
                if not running:
                    thought = _thought(samples)
                    answer = _tokens(samples) - (thought or 0)
                    usage = usage_of(record.prompt_tokens, answer, thought)
                    part.end = AnswerEnd(usage, {"gateway_ms": record.gateway_ms()})
                new = delta.text or delta.reasoning or delta.ids or delta.calls or delta.finish
                if index not in begun or new:
                    yield part
                begun.add(index)
    finally:
        record.answer_tokens = _tokens(samples)
        if keeps_answer:
            record.answer = "\n\n".join([*texts, *called])


def _tokens(samples: Sequence[SampleText]) -> int:
    return sum(sample.tokens for sample in samples)


def _thought(samples: Sequence[SampleText]) -> int | None:
    """Tokens of the thinking; None for samples without."""
    thinking = [sample.thinking for sample in samples if sample.thinking]
    return sum(len(each.ids) for each in thinking) if thinking else None


def _named_tokens(delta: Delta, texts: Sequence[str], begin: int) -> TokenLogs:
    """The log-probabilities of a delta, with the texts of its tokens."""
    top = [[(texts[token], log_prob) for token, log_prob in row] for row in delta.top]
    return TokenLogs([texts[token] for token in delta.ids], delta.log_probs, top, begin)
