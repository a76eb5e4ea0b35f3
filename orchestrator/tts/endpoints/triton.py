"""The generator and the verifier behind a Triton server, over asyncio gRPC.

`triton_requests` encodes requests from templates, `triton_stream` carries those of the generator,
a decoupled model that takes no others, over the channels of `triton_transport`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, Self, TypeVar

from tts.base.errors import EndpointError, RequestError
from tts.build.spec import ANSWER_TIMEOUT_S, Role
from tts.engines import wire
from tts.engines.generate_request import Sequences
from tts.engines.responses import first_probability

from .base import GenerateCall, ScoreCall, VerifierResult
from .retry import PATIENCE_S, Heartbeat, Restarts, retried
from .shaping import refuse_top, shaped
from .streaming import NewTokens, OutputEnds, StreamingGenerator
from .triton_errors import all_reset
from .triton_requests import (
    HOST_SHAPING,
    WIRE_SHAPING,
    Draw,
    RequestRow,
    RequestTemplate,
    generate_template,
    reset_request,
    score_template,
)
from .triton_stream import Sample
from .triton_transport import Channel, ScoreRows, contents_of, translation

RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""
TOKEN_STREAMS = 16
"""Streams of tokens that take requests at a time. gRPC reads the messages of a stream one after the
other, through a thread of its own; of several streams it hands over what has come together."""
# without an option of its own gRPC gives channels to one address the same connection
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)

T = TypeVar("T")


class TritonConnection:
    """A way to one server, which may come back, for both endpoints; a context manager."""

    def __init__(
        self,
        address: str,
        comes_back: Callable[[], bool] = lambda: False,
        *,
        most_rows: int = 1,
        host: bool = False,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        verifier_model: str = wire.PRM,
        verifier_writes: bool = False,
        scorer: str | None = None,
    ) -> None:
        """`address` is `host:port` or `unix:path` of the gRPC endpoint.

        `comes_back` says whether a server that is gone is being started again (see `retried`).
        `most_rows` is how many rows a request may have; TensorRT-LLM takes one. `host`: the models
        are those of our engine host (target openvino), which can do more than TensorRT-LLM.
        `verifier_writes`: the model that is the verifier has the generator's tensors. `scorer` is
        the model that makes scores of its logits; None: itself does.
        """
        self.address = address
        self._patience_s = PATIENCE_S
        self.host = host
        self._models: dict[Role, str] = {"generator": wire.GENERATOR, "verifier": verifier_model}
        self._verifier_writes = verifier_writes
        self._scorer = scorer
        self._restarts = Restarts(address, comes_back)
        self._heartbeat = Heartbeat(f"The server at {address}", answer_timeout_s)
        self._whole = Channel(address, self._heartbeat.beat, most_rows=most_rows)
        self._tokens: Channel | None = None
        self._closing: set[asyncio.Future[None]] = set()
        rows = ScoreRows(address, partial(self._infer, wire.PRM), most_rows)
        self._score_rows = rows if most_rows > 1 else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End what runs on it."""
        await self._whole.aclose()
        if self._tokens:
            await self._tokens.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    def limit_patience(self, seconds: float) -> None:
        """See endpoints.Connection."""
        self._patience_s = seconds

    def generator(self, ends: OutputEnds, role: Role = "generator") -> TritonGenerator:
        """The generator, or a verifier that writes; see endpoints.Connection."""
        return TritonGenerator(self, self._models[role], ends)

    def verifier(self) -> TritonVerifier:
        """The verifier."""
        model = self._scorer or self._models["verifier"]
        writes = self._verifier_writes and not self._scorer
        return TritonVerifier(self, score_template(model, writes=writes))

    async def reset_prefix_caches(self) -> bool:
        """See endpoints.Connection; raises EndpointError."""
        attempts: list[Callable[[], Awaitable[object]]] = []
        for model in {*self._models.values()}:
            if model == self._models["verifier"] and not self._verifier_writes:
                request = reset_request(model, scored=True)
                attempts.append(partial(self._infer, model, request, RESET_TIMEOUT_S))
            else:
                reset = partial(reset_request, model)
                start = partial(self._whole.streams(model).start, reset, whole=True)
                attempts.append(partial(self._sample, model, start, RESET_TIMEOUT_S))
        return await all_reset(*map(self._retried, attempts))

    async def sample(self, row: RequestRow) -> NewTokens:
        """The answer to a request that is answered once; retried, and stopped if it is given up."""
        model = row.template.model
        return await self._retried(partial(self._sample, model, partial(self._start, row)))

    async def stream(
        self, row: RequestRow, on_rest: Callable[[int], None] | None = None
    ) -> AsyncGenerator[NewTokens, None]:
        """The tokens of a request as they come; never retried, without a timeout.

        Raises EndpointError. Closing it stops the request on the engine; `on_rest` is that of
        GenerateCall.
        """
        model = row.template.model
        with translation(model, self.address):
            sample = self._token_channel().streams(model).start(row.encode, whole=False)
            try:
                while True:
                    new = await sample.next()
                    yield new
                    if new.final:
                        return
            finally:
                sample.cancel()
                if on_rest:
                    on_rest(await sample.rest())

    async def score(self, row: RequestRow) -> float:
        """The verifier's score of a chain; retried. Raises EndpointError."""
        return await self._retried(partial(self._score_once, row))

    async def _score_once(self, row: RequestRow) -> float:
        if self._verifier_writes:
            start = partial(self._start, row, scores=True)
            values = (await self._sample(row.template.model, start)).log_probs
            try:
                return values[0] if self._scorer else first_probability(values)
            except RequestError as error:
                raise EndpointError(f"Model {row.template.model}: {error.message}.") from None
        if self._score_rows:
            return await self._score_rows.score(row)
        answer = await self._infer(wire.PRM, row.encode(""))  # the name of all that only score
        return float(struct.unpack("<f", contents_of(answer, "score")["score"])[0])

    def _start(self, row: RequestRow, *, scores: bool = False) -> Sample:
        """Send a request by stream; `scores`: it is a score that the verifier writes."""
        model = self._models["verifier"] if scores else row.template.model
        streams = self._whole.streams(model, scores=scores)  # a request's stop names their model
        return streams.start_row(row) if self._score_rows else streams.start(row.encode, whole=True)

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, which is made again while the server may come back."""
        return await retried(attempt, self._restarts.comes_back, self._patience_s)

    async def _infer(self, model: str, request: bytes, least_s: float = 0.0) -> Any:
        """The answer to one unary request, a ModelInferRequest's bytes.

        `least_s`: how long the server may be silent, if that is more than it usually may.
        """
        self._restarts.look_again()
        with translation(model, self.address):
            async with self._heartbeat.limited(least_s):
                answer = await self._whole.infer(request)
        self._heartbeat.beat()
        self._restarts.reset()
        return answer

    async def _sample(
        self, model: str, start: Callable[[], Sample], least_s: float = 0.0
    ) -> NewTokens:
        """The answer to one request by stream; see `_infer`."""
        self._restarts.look_again()
        with translation(model, self.address):
            sample = start()
            try:
                async with self._heartbeat.limited(least_s):
                    new = await sample.next()
            finally:
                sample.cancel()
        self._restarts.reset()
        return new

    def _token_channel(self) -> Channel:
        """The channel of single tokens, a new one after a failure.

        gRPC waits, more and more, before it connects again to what was not there.
        """
        channel = self._tokens
        if channel and channel.broken and not channel.running:
            closing = asyncio.ensure_future(channel.aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            channel = None
        if channel is None:
            channel = self._tokens = Channel(
                self.address, self._heartbeat.beat, _OWN_CONNECTION, most_streams=TOKEN_STREAMS
            )
        return channel


class TritonGenerator(StreamingGenerator):
    """A model that writes; see endpoints.StreamingGenerator."""

    def __init__(self, connection: TritonConnection, model: str, ends: OutputEnds) -> None:
        self._connection, self._model, self._ends = connection, model, ends
        self._template = lru_cache(maxsize=256)(self._new_template)

    async def generate(self, call: GenerateCall) -> list[int]:
        """The new token ids; retried. See endpoints.Generator."""
        return (await self._connection.sample(self._row(call, None))).ids

    def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """The new token ids as they come. See endpoints.StreamingGenerator."""
        row = self._row(call, (call.streaming, call.log_probs))
        return self._connection.stream(row, call.on_rest)

    def _row(self, call: GenerateCall, flags: tuple[bool, bool] | None) -> RequestRow:
        """The request for it; without flags it is answered once."""
        guide, ids = call.guide, call.input_ids
        scalars: list[float] = [len(ids), call.max_new_tokens]
        draw: Draw = "greedy" if call.temperature == 0 else "top_k" if call.top_k else "all"
        if draw != "greedy":
            scalars += (call.temperature, call.top_p, call.seed)
        if draw == "top_k":
            scalars.append(call.top_k)
        shaping: tuple[tuple[str, float], ...] = ()
        host = self._connection.host
        engine = "the OpenVINO engine" if host else "TensorRT-LLM's model"
        refuse_top(call.top_log_probs, engine)
        if call.shaping:
            possible = HOST_SHAPING if host else WIRE_SHAPING
            shaping = tuple(shaped(call.shaping, possible, engine).items())
        ends = call.stop_at_step, call.stop_words, call.ignore_end
        template = self._template(*ends, draw, guide is not None, flags, shaping)
        return RequestRow(template, ids, scalars, guide or ())

    def _new_template(
        self,
        at_step: bool,
        stop_words: Sequences,
        ignore_end: bool,
        draw: Draw,
        guided: bool,
        flags: tuple[bool, bool] | None,
        shaping: tuple[tuple[str, float], ...],
    ) -> RequestTemplate:
        end_id = wire.NO_END_ID if ignore_end else self._ends.id
        words = self._ends.words(at_step, stop_words, ignore_end)
        return generate_template(
            end_id, words, draw, guided=guided, flags=flags, shaping=shaping, model=self._model
        )


class TritonVerifier:
    """A model that scores; see endpoints.Verifier."""

    def __init__(self, connection: TritonConnection, template: RequestTemplate) -> None:
        self._connection, self._template = connection, template

    async def score(self, call: ScoreCall) -> VerifierResult:
        """The score of a chain; retried. See endpoints.Verifier."""
        ids = call.input_ids
        score = await self._connection.score(RequestRow(self._template, ids, [len(ids)]))
        if not -1e-6 <= score <= 1 + 1e-6:  # NaN included
            raise EndpointError(f"The verifier answered {score}, which is no probability.")
        return VerifierResult(min(max(score, 0.0), 1.0))
