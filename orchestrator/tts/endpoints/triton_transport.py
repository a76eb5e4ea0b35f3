"""Requests to one Triton server over asyncio gRPC: channels, retries, silence.

Whole answers share one connection; scores that are asked for in one tick of the event loop are rows
of one request. Streams of single tokens have another connection, opened when it is first needed:
HTTP/2 sends all requests of one connection through one socket, so a token would wait behind the
long prompts of a search.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from functools import lru_cache, partial
from typing import Any, Self, TypeVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tts.base.errors import EndpointError
from tts.base.owner import require_unforked
from tts.engines import wire

from .retry import PATIENCE_S, Heartbeat, Restarts, retried
from .streaming import NewTokens
from .triton_errors import ErrorAnswer, Translation, all_reset
from .triton_requests import RequestRow, RequestTemplate, reset_request
from .triton_stream import Sample, Streams, TickBatcher

RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""

TOKEN_STREAMS = 16
"""Streams of tokens that take requests at a time. gRPC reads the messages of a stream one after the
other, through a thread of its own; of several streams it hands over what has come together."""
_SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own limit is 2 minutes: a server that is back would be called gone
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# without an option of its own gRPC gives channels to one address the same connection
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)

T = TypeVar("T")

translation = lru_cache(maxsize=64)(Translation)  # it holds no state


class Transport:
    """A way to one server: requests are sent again while it is being started again."""

    def __init__(
        self,
        address: str,
        comes_back: Callable[[], bool],
        *,
        most_rows: int,
        answer_timeout_s: float,
    ) -> None:
        """`address` is `host:port` or `unix:path` of the gRPC endpoint.

        `comes_back` says whether a server that is gone is being started again (see `retried`).
        `most_rows` is how many rows a request may have.
        """
        self.address = address
        self.patience_s = PATIENCE_S
        """How long a request is sent again; less where another server can take it."""
        self._restarts = Restarts(address, comes_back)
        self._heartbeat = Heartbeat(f"The server at {address}", answer_timeout_s)
        self.whole = Channel(address, self._heartbeat.beat, most_rows=most_rows)
        self._infer = self.whole.infer
        self._tokens: Channel | None = None
        self._closing: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End what runs on it."""
        await self.whole.aclose()
        if self._tokens:
            await self._tokens.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    async def infer(self, model: str, request: bytes, least_s: float = 0.0) -> Any:
        """One unary request, as a ModelInferRequest's bytes; retried. Raises EndpointError.

        `least_s`: how long the server may be silent, if that is more than it usually may.
        """
        return await self.retried(partial(self.infer_once, model, request, least_s))

    async def sample(
        self, model: str, start: Callable[[], Sample], least_s: float = 0.0
    ) -> NewTokens:
        """The answer to a request by stream that is answered once; retried.

        Raises EndpointError. A sample that is given up, and one whose wait is cancelled, is stopped
        on the engine.
        """
        return await self.retried(partial(self.sample_once, model, start, least_s))

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

    async def reset_caches(self, writing: Collection[str], scoring: Collection[str]) -> bool:
        """Whether all models have empty prefix caches again; False if one holds requests.

        `scoring` are the models that give scores alone. Raises EndpointError.
        """
        streams = self.whole.streams
        return await all_reset(
            *(
                self.sample(
                    model,
                    partial(streams(model).start, partial(reset_request, model), whole=True),
                    RESET_TIMEOUT_S,
                )
                for model in writing
            ),
            *(
                self.infer(model, reset_request(model, scored=True), RESET_TIMEOUT_S)
                for model in scoring
            ),
        )

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, which is made again while the server may come back."""
        return await retried(attempt, self._restarts.comes_back, self.patience_s)

    async def infer_once(self, model: str, request: bytes, least_s: float = 0.0) -> Any:
        """One attempt of `infer`."""
        self._restarts.look_again()
        with translation(model, self.address):
            async with self._heartbeat.limited(least_s):
                answer = await self._infer(request)
        self._heartbeat.beat()
        self._restarts.reset()
        return answer

    async def sample_once(
        self, model: str, start: Callable[[], Sample], least_s: float = 0.0
    ) -> NewTokens:
        """One attempt of `sample`."""
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


class Channel:
    """A gRPC channel with its calls."""

    def __init__(
        self,
        address: str,
        on_message: Callable[[], None],
        *options: tuple[str, int],
        most_rows: int = 1,
        most_streams: int = 1,
    ) -> None:
        require_unforked("gRPC")
        self._channel = grpc.aio.insecure_channel(address, options=[*_OPTIONS, *options])
        self.infer = self._channel.unary_unary(
            f"{_SERVICE}/ModelInfer",
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        open_call = self._channel.stream_stream(
            f"{_SERVICE}/ModelStreamInfer",
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self._new_streams = partial(Streams, open_call, most_rows, most_streams, on_message)
        self._streams: dict[tuple[str, bool], Streams] = {}

    def streams(self, model: str, *, scores: bool = False) -> Streams:
        """The streams of a model's samples, or of its scores.

        Rows that are answered together have the same outputs.
        """
        key = model, scores
        if key not in self._streams:
            self._streams[key] = self._new_streams(model)
        return self._streams[key]

    @property
    def running(self) -> int:
        """How many samples run."""
        return sum(streams.running for streams in self._streams.values())

    @property
    def broken(self) -> bool:
        """Whether a stream has ended before its time; see Streams."""
        return any(streams.broken for streams in self._streams.values())

    async def aclose(self) -> None:
        """End what runs on it."""
        await self._channel.close()
        for streams in self._streams.values():
            await streams.wait_closed()


_Row = tuple[RequestRow, "asyncio.Future[float]"]
"""A chain to score, and its score to come."""


class ScoreRows:
    """Sends the scores of a tick together; each is answered or fails by itself."""

    def __init__(self, transport: Transport, most_rows: int) -> None:
        """`most_rows` is how many rows a request may have."""
        self._transport = transport
        self._batcher: TickBatcher[RequestTemplate, _Row] = TickBatcher(self._send, most_rows)
        self._requests: set[asyncio.Task[None]] = set()

    async def score(self, row: RequestRow) -> float:
        """The verifier's score of a chain, once. Raises EndpointError."""
        score: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._batcher.add(row.template, (row, score))
        with translation(wire.PRM, self._transport.address):
            return await score

    def _send(self, template: RequestTemplate, rows: list[_Row]) -> None:
        if awaited := [(row, score) for row, score in rows if not score.done()]:
            request = asyncio.create_task(self._request(template, awaited))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)
            for _, score in awaited:
                score.add_done_callback(partial(_end_unawaited, request, awaited))

    async def _request(self, template: RequestTemplate, rows: list[_Row]) -> None:
        failure: Exception = EndpointError("The connection to the server was closed.")
        try:
            request = template.encode_rows("", 0, [row for row, _ in rows])
            answer = await self._transport.infer_once(wire.PRM, request)
            for number, result in _results(answer):
                _, score = rows[number]
                if score.done():
                    continue
                if isinstance(result, float):
                    score.set_result(result)
                else:
                    score.set_exception(result)
            failure = EndpointError("The answer of model prm holds no score.")
        except Exception as error:
            failure = error
        finally:
            for _, score in rows:
                if not score.done():
                    score.set_exception(failure)


def _end_unawaited(
    request: asyncio.Task[None], rows: list[_Row], score: asyncio.Future[float]
) -> None:
    """End a request for scores of which none is awaited any more."""
    if all(score.done() for _, score in rows):
        request.cancel()


def _results(answer: Any) -> Iterator[tuple[int, float | Exception]]:
    """The scores of rows, by number, or why there are none."""
    names = (output.name for output in answer.outputs)
    raw = dict(zip(names, answer.raw_output_contents, strict=False))
    numbers = np.frombuffer(output_of(answer, wire.BATCH_INDEX), "<i4").tolist()
    errors = wire.decode_texts(raw[wire.ERROR]) if wire.ERROR in raw else [""] * len(numbers)
    scores = np.frombuffer(raw.get("score", b""), "<f4").tolist() or [math.nan] * len(numbers)
    for number, score, error in zip(numbers, scores, errors, strict=True):
        yield number, ErrorAnswer(error) if error else score


def output_of(answer: Any, name: str) -> bytes:
    """The raw content of an output; EndpointError for an answer without it."""
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=False):
        if output.name == name:
            return bytes(raw)
    raise EndpointError(f"The answer of model {answer.model_name} holds no output {name!r}.")
