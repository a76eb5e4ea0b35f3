"""Samples of the generator as text that comes piece by piece."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tts.build.errors import CheckpointError, EndpointUnavailable, TtsError
from tts.endpoints.token_stream import NewTokens, TokenCall, TokenStreams
from tts.engines import wire
from tts.prompting import Models
from tts.search import node_seed
from tts.session.replicas import FAILURES, EnginePair, Replicas

from .chat_shapes import ChatShapes
from .choice import Choice, Finish
from .detokenizer import detokenizers
from .observability import RequestRecord
from .openai.errors import bad_request
from .openai.requests import Request
from .safety import FilterChain
from .stop_strings import StopStrings

Ids = npt.NDArray[np.int32]

RETRIES = 3
"""How often a request is sent again whose server went away before it gave a token."""
RETRY_WAIT_S = 0.2


@dataclass(slots=True)
class Delta:
    """What a choice has gained."""

    choice: Choice
    text: str
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    """Why the choice ends here; None: it goes on. The choice itself may be further."""


class TextGenerator:
    """The generator of a deployment, for requests that are part of no search."""

    def __init__(self, models: Models, replicas: Replicas, filters: FilterChain) -> None:
        self.models = models
        self._replicas = replicas
        self._streams: dict[EnginePair, tuple[TokenStreams, asyncio.Future[TtsError]]] = {}
        """With what `Replicas.lost` was when they were opened."""
        self._filters = filters
        self.chats = ChatShapes(models.generator)
        """Chats as the model reads them."""
        self._new_detokenizer = detokenizers(models.generator)

    @property
    def context(self) -> int:
        """Tokens of prompt and output together, at most."""
        return self.models.deployment.generator.max_seq_len

    def room(self, prompt: Sequence[int], wanted: int | None) -> int:
        """How many tokens may be generated after a prompt; raises ApiError if there is no room."""
        room = self.context - len(prompt)
        if room < 1:
            raise bad_request(
                f"The prompt is {len(prompt)} tokens long; the generator's context holds "
                f"{self.context}, prompt and output together.",
                "messages",
                "context_length_exceeded",
            )
        return min(wanted or room, room)

    def calls(
        self, prompts: Sequence[list[int]], request: Request, limits: Sequence[int], *, logs: bool
    ) -> list[TokenCall]:
        """A call for each choice: n for each prompt, each with a seed of its own."""
        seed = request.seed if request.seed is not None else secrets.randbits(62)
        models = self.models
        greedy = request.temperature == 0
        stop_words: list[tuple[int, ...]] = [(token,) for token in request.stop_token_ids]
        if not request.ignore_eos:
            stop_words += models.end_stop_words
        if models.step_delimiter in request.stops:  # the engine itself can end there
            stop_words += models.step_stop_words
        streams = request.stream or bool(request.stops)  # else there is nothing to be seen early
        return [
            TokenCall(
                np.asarray(prompt, dtype=np.int32),
                limit,
                wire.NO_END_ID if request.ignore_eos else models.end_id,
                node_seed(seed, "generate", (place * request.n + sample,)),
                0.0 if greedy else 1.0 if request.temperature is None else request.temperature,
                request.top_p or 1.0,
                max(request.top_k or 0, 0),
                tuple(stop_words),
                logs,
                streams,
            )
            for place, (prompt, limit) in enumerate(zip(prompts, limits, strict=True))
            for sample in range(request.n)
        ]

    def choice(self, index: int, call: TokenCall, request: Request) -> Choice:
        """What becomes of a call's tokens."""
        ends = set(request.stop_token_ids)
        if not request.ignore_eos:
            ends.update(word[0] for word in self.models.end_stop_words)
        include = request.include_stop_str_in_output
        return Choice(
            index,
            self._new_detokenizer(),
            StopStrings(request.stops, include=include),
            call.max_new_tokens,
            frozenset(ends),
            self._filters.output() if self._filters.of_output else None,
        )

    async def warm(self) -> None:
        """Do once what would make the first request wait: connect, learn the shapes of chats."""
        chat = [{"role": "user", "content": "1"}]
        for messages in (chat, [{"role": "system", "content": "1"}, *chat]):
            with suppress(CheckpointError):  # of a template that takes no such chat
                self.chats.render(messages, generation_prompt=True)
        request = Request(model="", temperature=0.0, stream=True)
        prompt = self.models.generator.encode("1")
        (call,) = self.calls([prompt], request, [1], logs=False)
        record = RequestRecord(id="", endpoint="", time=0.0, t0=0.0)
        async with aclosing(self.deltas(call, self.choice(0, call, request), record, "")) as sample:
            async for _ in sample:
                pass

    async def aclose(self) -> None:
        """Let go of all streams."""
        for streams, _ in self._streams.values():
            await streams.aclose()

    async def deltas(
        self, call: TokenCall, choice: Choice, record: RequestRecord, key: str
    ) -> AsyncGenerator[Delta, None]:
        """One sample; the last delta's choice has a reason to end. Raises EndpointError.

        `key` is the same for what should go to the same replica. A sample whose server goes away
        goes on elsewhere, where there are several, after the tokens that it has: what it draws
        there is not what it would have drawn. Leaving it early ends it on the engine.
        """
        failed: list[str] = []
        while True:
            given: list[int] = []
            pair: EnginePair | None = None
            try:
                async with self._replicas.lease(key, avoid=failed) as pair:
                    record.replica = pair.name
                    if pair.name in failed:  # there is no other, and it may not know yet
                        await asyncio.sleep(RETRY_WAIT_S)
                    run = (await self._streams_of(pair)).start(call)
                    record.t2 = record.t2 or time.monotonic()
                    try:
                        while choice.finish is None:
                            new = await run.next()
                            record.t3 = record.t3 or time.monotonic()
                            given += new.ids
                            text = choice.take(new)
                            yield Delta(choice, text, new.ids, new.log_probs, choice.finish)
                    finally:
                        run.cancel()
                return
            except FAILURES:
                if pair is None or len(failed) >= max(RETRIES, len(self._replicas)):
                    raise
                failed.append(pair.name)
            if len(given) == call.max_new_tokens:  # only the word that it ends there is missing
                text = choice.take(NewTokens([], [], final=True))
                yield Delta(choice, text, finish=choice.finish)
                return
            call = _continued(call, given)

    async def _streams_of(self, pair: EnginePair) -> TokenStreams:
        """The streams to a replica; those to replicas that are no more are let go of.

        To one that was lost and is back they are opened anew: gRPC would wait with its connection.
        """
        streams, lost = self._streams.get(pair, (None, None))
        if streams is None or lost is not self._replicas.lost(pair):
            if pair.connection is None:
                raise EndpointUnavailable("There is no server behind these engines.")
            kept = {*self._replicas.pairs} - {pair}
            closing = [self._streams.pop(each)[0] for each in self._streams.keys() - kept]
            streams = TokenStreams(pair.connection.address)
            self._streams[pair] = streams, self._replicas.lost(pair)
            for each in closing:
                await each.aclose()
        return streams

    def merged(
        self,
        calls: Sequence[TokenCall],
        choices: Sequence[Choice],
        record: RequestRecord,
        key: str,
    ) -> AsyncGenerator[Delta, None]:
        """All samples at a time, each delta as it comes. The first failure ends all of them."""
        samples = [
            self.deltas(call, choice, record, key)
            for call, choice in zip(calls, choices, strict=True)
        ]
        return samples[0] if len(samples) == 1 else _merged(samples)


async def _merged(
    samples: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[Delta, None]:
    queue: asyncio.Queue[Delta | BaseException | None] = asyncio.Queue()

    async def pump(sample: AsyncGenerator[Delta, None]) -> None:
        try:
            async for delta in sample:
                queue.put_nowait(delta)
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    pumps = [asyncio.ensure_future(pump(sample)) for sample in samples]
    try:
        left = len(pumps)
        while left:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.wait(pumps)


def _continued(call: TokenCall, given: Sequence[int]) -> TokenCall:
    """What is left of a call that has given some tokens."""
    ids = np.concatenate((call.input_ids, np.asarray(given, dtype=np.int32)))
    return replace(call, input_ids=ids, max_new_tokens=call.max_new_tokens - len(given))
