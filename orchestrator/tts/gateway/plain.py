"""Plain generation as a response: whole, or token by token."""

from __future__ import annotations

import time
from asyncio import timeout
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from tts.engines.wire import Guide

from .exchange import Exchange
from .generation import CallingDelta, Delta
from .openai.answers import Answer, AnswerForm, usage_of
from .openai.errors import ApiError, bad_request
from .openai.events import DONE, Events
from .openai.messages import ToolCall
from .openai.requests import Request
from .sample_text import SampleText
from .service import Service, admit
from .tool_turns import ToolTurn, reading_calls
from .tools.votes import canonical


async def answer(
    service: Service,
    exchange: Exchange,
    request: Request,
    prompts: Sequence[list[int]],
    form: AnswerForm,
    *,
    key: str,
    logs: int | None = None,
    guide: Guide | None = None,
    turn: ToolTurn | None = None,
) -> None:
    """Generate n choices for each prompt, and respond.

    `key` names the conversation, which stays on one replica. `logs`: with log-probabilities, and
    those of so many of the likeliest tokens. `guide` is the grammar that outputs follow, `turn` how
    calls of tools stand in them.
    """
    if logs is not None and service.filters.of_output:
        raise bad_request(
            "logprobs are not given here: answers are filtered, and they would tell what was.",
            "logprobs",
            "unsupported_parameter",
        )
    generator = service.generator
    limits = [generator.room(prompt, request.limit) for prompt in prompts]
    calls = generator.calls(
        prompts,
        request,
        limits,
        logs=logs,
        guide=guide,
        charged=exchange.key is not None,
    )
    marks = turn.marks if turn else None
    samples = [generator.sample(index, call, request, marks) for index, call in enumerate(calls)]
    admit(service, exchange, sum(limits) * request.n + sum(map(len, prompts)), search=False)
    exchange.record.prompt_tokens = sum(map(len, prompts))
    if service.recorder.keeps_prompts:
        tokenizer = generator.models.generator
        exchange.record.prompt = "\n\n".join(tokenizer.decode(prompt) for prompt in prompts)
    response = PlainResponse(
        service, exchange, request, form, samples, logs=logs is not None, calling=turn is not None
    )
    deltas = generator.merged(calls, samples, exchange.record, key)
    if turn:
        deltas = reading_calls(deltas, turn, len(samples))
    limit_s = service.settings.deadline_s
    try:
        async with timeout(limit_s):
            await (response.stream(deltas) if request.stream else response.whole(deltas))
    except TimeoutError:
        raise ApiError(
            504, f"The answer was not complete within {limit_s:g} s.", code="deadline_exceeded"
        ) from None
    finally:
        response.count()  # also of an answer that its client did not wait for


class PlainResponse:
    """The response to one request for samples, whole or as a stream."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        request: Request,
        form: AnswerForm,
        samples: Sequence[SampleText],
        *,
        logs: bool,
        calling: bool,
    ) -> None:
        """`logs`: with log-probabilities. `calling`: the deltas are `CallingDelta`."""
        self._exchange = exchange
        self._request = request
        self._form = form
        self._samples = samples
        self._logs = logs
        self._token_texts = service.generator.models.generator.token_texts if logs else []
        self._keeps_answer = service.recorder.keeps_prompts
        self._texts = [""] * len(samples)
        """The samples' texts so far, where somebody will ask for them."""
        self._offsets = [0] * len(samples)
        """How many characters of each text have log-probabilities already."""
        self._calling = calling
        self._calls: list[list[ToolCall]] = [[] for _ in samples]
        self._id = exchange.record.id
        self._created = int(time.time())

    async def whole(self, deltas: AsyncGenerator[Delta, None]) -> None:
        """Respond when all samples have ended."""
        gathered = [Delta(sample, "") for sample in self._samples]
        async with aclosing(deltas):
            async for delta in deltas:
                self._keep(delta)
                gathered[delta.sample.index].ids += delta.ids
                gathered[delta.sample.index].log_probs += delta.log_probs
                gathered[delta.sample.index].top += delta.top
                gathered[delta.sample.index].finish = delta.finish
                if isinstance(delta, CallingDelta):
                    self._calls[delta.sample.index] += delta.calls
        choices = [
            self._form.choice(
                index, text, delta.finish or "stop", self._log_probs(delta), self._calls[index]
            )
            for index, (text, delta) in enumerate(zip(self._texts, gathered, strict=True))
        ]
        whole = Answer(
            self._id,
            self._form.object,
            self._created,
            self._request.model,
            choices,
            usage_of(self._exchange.record.prompt_tokens, self._tokens),
        )
        self._exchange.record.t4 = time.monotonic()
        await self._exchange.respond(msgspec.json.encode(whole))

    async def stream(self, deltas: AsyncGenerator[Delta, None]) -> None:
        """Respond with each delta as it comes."""
        exchange, request, form = self._exchange, self._request, self._form
        counts = request.stream_options.include_usage
        events = Events(self._id, form.chunk, self._created, request.model, usage=counts)
        begun: set[int] = set()
        running = len(self._samples)
        calling = self._calling
        exchange.record.stream = True
        async with aclosing(deltas):
            async for delta in deltas:
                self._keep(delta)
                index = delta.sample.index
                data = b""
                if index not in begun:
                    begun.add(index)
                    if form.chats:
                        data = events.role(index)
                if self._logs and delta.ids:
                    data += events.choice(index, delta.text, logprobs=self._log_probs(delta))
                elif delta.text:
                    data += events.text(index, delta.text)
                if calling:
                    data += self._called(events, delta)
                if exchange.record.t5 is None:
                    exchange.record.t4 = time.monotonic()
                    await exchange.start_events()
                if delta.finish:
                    running -= 1
                    last = not running and not counts
                    data += events.choice(
                        index, "", finish=delta.finish, tts=_own_latency(exchange) if last else None
                    )
                if running:
                    if data:
                        await exchange.event(data)
                    continue
                if counts:
                    usage = usage_of(exchange.record.prompt_tokens, self._tokens)
                    data += events.usage(usage, tts=_own_latency(exchange))
                await exchange.end_events(data + DONE)

    def count(self) -> None:
        """Keep the tokens so far in the request's record, and the answer if that is wanted."""
        if self._keeps_answer:
            called = [canonical(call) for calls in self._calls for call in calls]
            self._exchange.record.answer = "\n\n".join([*self._texts, *called])
        self._exchange.record.answer_tokens = self._tokens

    @property
    def _tokens(self) -> int:
        """Tokens of all samples so far."""
        return sum(sample.tokens for sample in self._samples)

    def _keep(self, delta: Delta) -> None:
        if self._keeps_answer or not self._request.stream:
            self._texts[delta.sample.index] += delta.text

    def _called(self, events: Events, delta: Delta) -> bytes:
        """What a stream says of new calls."""
        if not isinstance(delta, CallingDelta) or not delta.calls:
            return b""
        calls = self._calls[delta.sample.index]
        calls += delta.calls
        return events.calls(delta.sample.index, len(calls) - len(delta.calls), delta.calls)

    def _log_probs(self, delta: Delta) -> Any:
        """The log-probabilities of a delta's tokens; None if nobody asked."""
        if not self._logs:
            return None
        texts = self._token_texts
        tokens = [texts[i] for i in delta.ids]
        top = [[(texts[i], log_prob) for i, log_prob in row] for row in delta.top]
        begin = self._offsets[delta.sample.index]
        self._offsets[delta.sample.index] += sum(map(len, tokens))
        return self._form.logprobs(tokens, delta.log_probs, top, begin)


def _own_latency(exchange: Exchange) -> dict[str, Any]:
    own = exchange.record.own_latency_s()
    return {"gateway_ms": None if own is None else round(1000 * own, 3)}
