"""Samples of the generator as text that comes piece by piece."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
from msgspec import Struct

from tts.base.errors import CheckpointError
from tts.build.thinking import Thinking
from tts.build.tokenizer import Message, Tokenizer, TooManyTokens
from tts.endpoints.base import GenerateCall
from tts.endpoints.shaping import Shaping
from tts.endpoints.streaming import NewTokens
from tts.endpoints.thinking import ThinkingWriter
from tts.endpoints.together import TickBatcher
from tts.engines.wire import Guide
from tts.fleet.endpoints import routed_reading, routed_stream
from tts.fleet.replicas import Replicas
from tts.prompting import Models
from tts.prompting.chat import in_known_roles
from tts.prompting.thinking import part_seed
from tts.search import node_seed

from ..observability.record import ServedRequest
from ..openai.errors import bad_request
from ..openai.messages import ToolCall
from ..openai.requests import Request
from ..safety.filters import FilterChain
from .sample_text import (
    Finish,
    MarkingDetokenizer,
    SampleText,
    SampleThinking,
    StopStrings,
    detokenizers,
)

PLAIN_TEMPERATURE, PLAIN_TOP_P = 1.0, 1.0
"""Default of a request without a search, as in OpenAI's API."""


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class Delta(Struct):
    """New output of a sample."""

    sample: SampleText
    text: str
    ids: list[int] = []
    log_probs: list[float] = []
    """Log-probability of each of `ids` (NaN of a prompt's first), where somebody asked."""
    top: list[list[tuple[int, float]]] = []
    """The likeliest tokens at the places of `ids`, where somebody asked."""
    finish: Finish | None = None
    """Why the sample ends here; None: it goes on. The sample itself may be further."""
    calls: Sequence[ToolCall] = ()
    """Calls of tools, which are in no text."""
    reasoning: str = ""
    """Text of the thinking before the answer."""


@dataclass(frozen=True)
class Sampling:
    """Prompts, and how their samples are drawn and read."""

    prompts: Sequence[list[int]] = ()
    conversation: str = ""
    """Name of the conversation, which stays on one replica."""
    logs: int | None = None
    """Number of likeliest tokens whose log-probabilities come with each token's; None: no such."""
    echo: bool = False
    """Whether each sample begins with its prompt."""
    guide: Guide | None = None
    """Grammar that each output follows."""
    marks: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that texts shall hold."""
    thinking: Thinking | None = None
    """Thinking inside which the prompts end; all that a request asks of its output holds behind."""
    lead: str = ""
    """Text that is put behind the thinking, with which the answer begins."""


class TextGenerator:
    """The generator of a deployment, for requests that are part of no search."""

    def __init__(self, models: Models, replicas: Replicas, filters: FilterChain) -> None:
        self.models = models
        self._replicas = replicas
        self._filters = filters
        self._new_detokenizer = detokenizers(models.generator)
        self.chat_text = _gathered(_texts_of)
        """A chat by its template, given the tokenizer and whether the prompt of an answer ends it:
        in one exchange with all chats of this turn of the event loop."""
        self.text_ids = _gathered(self._ids_of)
        """The ids of a text by `prompt_ids`: side by side with all texts of this turn."""

    @property
    def context(self) -> int:
        """Tokens of prompt and output together, at most."""
        return self.models.deployment.generator.max_seq_len

    def prompt_ids(self, text: str) -> list[int]:
        """The token ids of a prompt; raises ApiError if there is no room after it."""
        try:
            return self.models.generator.encode(text, self.context - 1)
        except TooManyTokens as error:
            self.room(error.count, None)
            raise

    def _ids_of(self, _: None, texts: list[str]) -> list[list[int]]:
        if len(texts) > 1:
            return self.models.generator.encode_all(texts, self.context - 1)
        return list(map(self.prompt_ids, texts))

    def room(self, size: int, limit: int | None) -> int:
        """How many tokens may be generated after a prompt of this size; ApiError if none may."""
        room = self.context - size
        if room < 1:
            raise bad_request(
                f"This model's maximum context length is {self.context} tokens. However, your "
                f"messages resulted in {size} tokens, and the answer needs one at least. "
                "Please reduce the length of the messages.",
                "messages",
                "context_length_exceeded",
            )
        return room if limit is None else min(limit, room)

    def calls(
        self, request: Request, sampling: Sampling, limits: Sequence[int], *, charged: bool = False
    ) -> list[GenerateCall]:
        """A call with its own seed for each choice; `charged`: somebody pays for each token."""
        seed = request.seed if request.seed is not None else secrets.randbits(62)
        temperature = PLAIN_TEMPERATURE if request.temperature is None else request.temperature
        consecutive = self.models.deployment.consecutive_seeds
        shaping = request.shaping
        if shaping is not None:
            self._require_possible(shaping, limits)
        return [
            GenerateCall(
                np.asarray(prompt, dtype=np.int32),
                limit,
                node_seed(seed, "generate", (place * request.n + sample,), consecutive=consecutive),
                temperature,
                request.top_p or PLAIN_TOP_P,
                stop_at_step=self.models.step_delimiter in request.stops,
                guide=sampling.guide,
                top_k=max(request.top_k or 0, 0),
                stop_words=tuple((token,) for token in request.stop_token_ids),
                ignore_end=request.ignore_eos,
                log_probs=sampling.logs is not None,
                top_log_probs=sampling.logs or 0,
                # else there is nothing to be seen early
                streaming=request.stream or bool(request.stops) or charged,
                shaping=shaping,
            )
            for place, (prompt, limit) in enumerate(zip(sampling.prompts, limits, strict=True))
            for sample in range(request.n)
        ]

    def _require_possible(self, shaping: Shaping, limits: Sequence[int]) -> None:
        """Raise ApiError for what no engine of this vocabulary and context can do."""
        size = self.models.generator.vocab_size
        if wrong := [token for token, _ in shaping.logit_bias if token >= size]:
            raise bad_request(
                f"logit_bias names the token id {wrong[0]}; the vocabulary is 0..{size - 1}.",
                "logit_bias",
            )
        if shaping.min_tokens > min(limits):
            raise bad_request(
                f"min_tokens is {shaping.min_tokens}; the answer has at most {min(limits)} tokens.",
                "min_tokens",
            )

    def sample(
        self,
        index: int,
        call: GenerateCall,
        request: Request,
        sampling: Sampling = Sampling(),
    ) -> SampleText:
        """The treatment of a call's tokens."""
        new, marks = self._new_detokenizer, sampling.marks
        ends = frozenset(word[0] for word in self.models.end_stop_words)
        ends = frozenset() if request.ignore_eos else ends
        return SampleText(
            index,
            MarkingDetokenizer(new, marks) if marks else new(),
            StopStrings(request.stops, include=request.include_stop_str_in_output),
            call.max_new_tokens,
            ends | {*request.stop_token_ids},
            self._filters.output() if self._filters.of_output else None,
            self._thinking(call, sampling.thinking, ends, sampling.lead),
        )

    def _thinking(
        self, call: GenerateCall, thinking: Thinking | None, ends: frozenset[int], lead: str
    ) -> SampleThinking | None:
        if thinking is None:
            return None
        budget, limit = thinking.budget, call.max_new_tokens
        closes = budget is not None and budget < limit
        if budget is not None and closes:
            limit = budget - len(thinking.closing_ids)
        of_answer = call.guide, call.stop_words, lead, call.shaping and call.shaping.min_tokens
        return SampleThinking(
            ThinkingWriter(thinking, limit, closes),
            self._new_detokenizer,
            apart=closes or any(of_answer),
            ends=ends,
            lead=self.models.generator.encode(lead),
            text_filter=self._filters.output() if self._filters.of_output else None,
        )

    async def warm(self) -> None:
        """Do once what would make the first request wait: connect, run the chat template."""
        chat = [{"role": "system", "content": "1"}, {"role": "user", "content": "1"}]
        with suppress(CheckpointError):  # of a template that takes no such chat
            turns = in_known_roles(self.models.generator, chat)
            self.models.generator.chat(turns, generation_prompt=True)
        request = Request(model="", temperature=0.0, stream=True)
        prompt = self.models.generator.encode("1")
        (call,) = self.calls(request, Sampling([prompt]), [1])
        record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0)
        async with aclosing(self.deltas(call, self.sample(0, call, request), record, "")) as deltas:
            async for _ in deltas:
                pass

    async def deltas(
        self, call: GenerateCall, sample: SampleText, record: ServedRequest, key: str
    ) -> AsyncGenerator[Delta, None]:
        """One sample; its last delta has a reason to end. Raises EndpointError.

        `key` and the treatment of a sample whose server goes away are as of `routed_stream`.
        Leaving it early ends it on the engine, and counts what that has written by then.
        """
        call = replace(call, on_rest=sample.count_rest)
        if sample.thinking:
            thought = self._thought(call, sample, sample.thinking, record, key)
            async with aclosing(thought) as deltas:
                async for delta in deltas:
                    yield delta
            if sample.finish:
                return
            answer_call = sample.thinking.writer.answer_request(call, sample.thinking.lead)
            call = replace(answer_call, seed=part_seed(call.seed, 1), stop_at_step=False)
        async with aclosing(self._tokens(call, record, key)) as stream:
            async for new in stream:
                _note_tokens(record, call, new)
                yield _delta(sample, new)
                if sample.finish:
                    return

    async def _thought(
        self,
        call: GenerateCall,
        sample: SampleText,
        thinking: SampleThinking,
        record: ServedRequest,
        key: str,
    ) -> AsyncGenerator[Delta, None]:
        """The thinking of a sample, and the answer behind it unless that is another request."""
        writer = thinking.writer
        inside = replace(call, stop_at_step=False, max_new_tokens=writer.limit)
        inside = writer.request(call) if thinking.apart else inside
        async with aclosing(self._tokens(inside, record, key)) as stream:
            async for new in stream:
                _note_tokens(record, call, new)
                reasoning, behind = sample.think(new)
                if sample.thinks or thinking.apart:
                    yield Delta(sample, "", reasoning=reasoning, finish=sample.finish)
                else:
                    yield _delta(sample, behind, reasoning)
                if sample.finish or (thinking.apart and writer.closed):
                    return

    def _tokens(
        self, call: GenerateCall, record: ServedRequest, key: str
    ) -> AsyncGenerator[NewTokens, None]:
        return routed_stream(self._replicas, call, key, partial(_note_server, record))

    async def _echoed(
        self, call: GenerateCall, sample: SampleText, record: ServedRequest, key: str
    ) -> AsyncGenerator[Delta, None]:
        """One sample behind its prompt, with the log-probabilities that the call asks for."""
        read = NewTokens([])
        if call.log_probs:
            read = await routed_reading(self._replicas, call, key, partial(_note_server, record))
        record.t3 = record.t3 or time.monotonic()
        text = self.models.generator.decode(call.input_ids.tolist())
        yield Delta(sample, text, read.ids, read.log_probs, read.top)
        async with aclosing(self.deltas(call, sample, record, key)) as deltas:
            async for delta in deltas:
                yield delta

    def merged(
        self,
        calls: Sequence[GenerateCall],
        samples: Sequence[SampleText],
        record: ServedRequest,
        sampling: Sampling,
    ) -> AsyncGenerator[Delta, None]:
        """All samples at a time, each delta as it comes. The first failure ends all of them."""
        deltas = self._echoed if sampling.echo else self.deltas
        streams = [
            deltas(call, sample, record, sampling.conversation)
            for call, sample in zip(calls, samples, strict=True)
        ]
        return streams[0] if len(streams) == 1 else _merged(streams)


def _gathered(work: Callable[[K, list[T]], list[R]]) -> Callable[[K, T], Awaitable[R]]:
    """Calls of one turn of the event loop as one piece of work; each by itself if one cannot be."""

    def hand_over(key: K, calls: list[tuple[T, asyncio.Future[R]]]) -> None:
        calls = [each for each in calls if not each[1].done()]
        try:
            results = work(key, [item for item, _ in calls])
        except Exception as error:
            one_cannot_be = isinstance(error, CheckpointError | TooManyTokens) and len(calls) > 1
            for each in calls:
                if one_cannot_be:
                    hand_over(key, [each])
                else:
                    each[1].set_exception(error)
        else:
            for (_, future), result in zip(calls, results, strict=True):
                future.set_result(result)

    batcher = TickBatcher(hand_over, sys.maxsize)

    async def call(key: K, item: T) -> R:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        batcher.add(key, (item, future))
        return await future

    return call


def _texts_of(kind: tuple[Tokenizer, bool], chats: list[Sequence[Message]]) -> list[str]:
    tokenizer, generation_prompt = kind
    return tokenizer.chats(chats, generation_prompt=generation_prompt)


def _note_server(record: ServedRequest, server: str) -> None:
    record.replica = server
    record.t2 = record.t2 or time.monotonic()


def _note_tokens(record: ServedRequest, call: GenerateCall, new: NewTokens) -> None:
    """Note that tokens have come; raises ApiError where they lack log-probabilities."""
    record.t3 = record.t3 or time.monotonic()
    size = len(new.ids)
    if (call.log_probs and len(new.log_probs) != size) or (
        call.top_log_probs and len(new.top) != size
    ):
        raise bad_request(
            "The generator of this gateway gives no such log-probabilities.",
            "logprobs",
            "unsupported_parameter",
        )


def _delta(sample: SampleText, new: NewTokens, reasoning: str = "") -> Delta:
    text = sample.take(new)
    if sample.blank:  # white space behind the thinking is in no text, nor are its tokens
        new = NewTokens([])
    return Delta(sample, text, new.ids, new.log_probs, new.top, sample.finish, reasoning=reasoning)


async def _merged(
    streams: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[Delta, None]:
    queue: asyncio.Queue[Delta | BaseException | None] = asyncio.Queue(len(streams))
    # so a client that reads slowly holds its samples up, not piles of their deltas

    async def pump(stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    await queue.put(delta)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    pumps = [asyncio.ensure_future(pump(stream)) for stream in streams]
    try:
        running = len(pumps)
        while running:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.wait(pumps)
