"""The generator and the verifier behind a Triton server, over asyncio gRPC.

Requests are encoded from templates (`triton_requests`), answers are Triton's own protobuf messages.
The generator is a decoupled model, which takes requests only by stream (`triton_stream`); what a
server's errors mean is in `triton_errors`.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tts.base.errors import EndpointError, EndpointUnavailable, RequestError
from tts.base.owner import require_unforked
from tts.build.spec import ANSWER_TIMEOUT_S, Role
from tts.engines import wire
from tts.engines.responses import first_probability

from .base import (
    GenerateCall,
    NewTokens,
    ScoreCall,
    StreamingGenerator,
    VerifierResult,
    refuse_top,
    shaped,
)
from .retry import MOST_DEATHS, PATIENCE_S, retried
from .silence import Silence
from .triton_errors import ErrorAnswer, Translation, all_reset
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
from .triton_stream import Sample, Streams
from .turns import Turns

RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""

TOKEN_STREAMS = 16
"""Streams of tokens that take requests at a time. gRPC reads the messages of a stream one after the
other, through a thread of its own; of several streams it hands over what has come together."""
_SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own limit is 2 minutes: a server that is back would be called gone
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_FP32 = struct.Struct("<f")
_AskedScore = tuple[RequestRow, "asyncio.Future[float]"]
_translation = lru_cache(maxsize=64)(Translation)  # it holds no state


class TritonConnection:
    """What connects to one server, shared by both endpoints; an async context manager.

    Whole answers share one connection. Streams of single tokens have another connection, opened
    when it is first needed: HTTP/2 sends all requests of one connection through one socket, so a
    token would wait behind the long prompts of a search.
    """

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
        self.host = host
        self._models: dict[Role, str] = {"generator": wire.GENERATOR, "verifier": verifier_model}
        self._verifier_writes = verifier_writes
        self._scorer = scorer
        self.address = address
        self.patience_s = PATIENCE_S
        """How long a request is sent again; less where another server can take it."""
        self._is_coming_back = comes_back
        self._down = False
        """Whether it was coming back when it was last asked after."""
        self._deaths = 0
        """How often it has gone since it last answered."""
        self._silence = Silence(f"The server at {address}", answer_timeout_s)
        self._whole = _Channel(address, _OPTIONS, self._silence.broken, most_rows)
        self._by_rows = most_rows > 1
        self._scores: Turns[RequestTemplate, _AskedScore] = Turns(self._ask_scores, most_rows)
        self._asking: set[asyncio.Task[None]] = set()
        self._infer = self._whole.infer
        self._tokens: _Channel | None = None
        self._closing: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """See endpoints.Connection."""
        await self._whole.aclose()
        if self._tokens:
            await self._tokens.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    async def infer(self, model: str, request: bytes, least_s: float = 0.0) -> Any:
        """One unary request, as a ModelInferRequest's bytes; retried. Raises EndpointError."""
        attempt = partial(self._infer_once, model, request, least_s)
        return await retried(attempt, self._comes_back, self.patience_s)

    async def generate(self, row: RequestRow) -> list[int]:
        """The tokens of a sample that is answered once; retried.

        Raises EndpointError. A sample that is given up, and one whose wait is cancelled, is stopped
        on the engine.
        """
        attempt = partial(self._sample_once, row.template.model, partial(self._start, row))
        return (await retried(attempt, self._comes_back, self.patience_s)).ids

    async def score(self, row: RequestRow) -> float:
        """What the verifier says of a chain; retried. Raises EndpointError."""
        return await retried(partial(self._score_once, row), self._comes_back, self.patience_s)

    async def stream(self, row: RequestRow) -> AsyncGenerator[NewTokens, None]:
        """The tokens of a request as they come; never retried, without a timeout.

        Raises EndpointError. Closing it stops the request on the engine.
        """
        model = row.template.model
        with Translation(model, self.address):
            sample = self._token_channel().streams(model).start(row.encode, whole=False)
            try:
                while True:
                    new = await sample.next()
                    yield new
                    if new.final:
                        return
            finally:
                sample.cancel()

    def generator(
        self,
        role: Role = "generator",
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]] = (),
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> TritonGenerator:
        """See endpoints.Connection."""
        return TritonGenerator(
            self,
            end_id=end_id,
            step_stop_words=step_stop_words,
            end_stop_words=end_stop_words,
            model=self._models[role],
        )

    def verifier(self) -> TritonVerifier:
        """See endpoints.Connection."""
        model = self._scorer or self._models["verifier"]
        writes = self._verifier_writes and not self._scorer
        return TritonVerifier(self, score_template(model, writes=writes))

    async def reset_prefix_caches(self) -> bool:
        """Leave the engines of target openvino as they were when the server was ready.

        False if one of them holds requests. Raises EndpointError.
        """
        writing = set(self._models.values())
        scoring = set() if self._verifier_writes else {self._models["verifier"]}
        return await all_reset(
            *(self._reset_by_stream(model) for model in writing - scoring),
            *(
                self.infer(model, reset_request(model, scored=True), RESET_TIMEOUT_S)
                for model in scoring
            ),
        )

    async def _reset_by_stream(self, model: str) -> NewTokens:
        request = partial(reset_request, model)
        start = partial(self._whole.streams(model).start, request, whole=True)
        attempt = partial(self._sample_once, model, start, RESET_TIMEOUT_S)
        return await retried(attempt, self._comes_back, self.patience_s)

    async def _score_once(self, row: RequestRow) -> float:
        if self._verifier_writes:
            start = partial(self._start, row, scores=True)
            given = (await self._sample_once(row.template.model, start)).log_probs
            try:
                return given[0] if self._scorer else first_probability(given)
            except RequestError as error:
                raise EndpointError(f"Model {row.template.model}: {error.message}.") from None
        if not self._by_rows:
            answer = await self._infer_once(wire.PRM, row.encode(""))
            return float(_FP32.unpack(_output(answer, "score"))[0])
        score: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._scores.add(row.template, (row, score))
        with _translation(wire.PRM, self.address):
            return await score

    def _ask_scores(self, template: RequestTemplate, asked: list[_AskedScore]) -> None:
        if wanted := [(row, score) for row, score in asked if not score.done()]:
            task = asyncio.create_task(self._score_rows(template, wanted))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
            for _, score in wanted:
                score.add_done_callback(partial(_end_if_done, task, wanted))

    async def _score_rows(self, template: RequestTemplate, asked: list[_AskedScore]) -> None:
        """One request for several scores, each of which is given or failed by itself."""
        failure: Exception = EndpointError("The connection to the server was closed.")
        try:
            request = template.encode_rows("", 0, [row for row, _ in asked])
            answer = await self._infer_once(wire.PRM, request)
            for number, found in _scores_of(answer):
                _, score = asked[number]
                if score.done():
                    continue
                if isinstance(found, float):
                    score.set_result(found)
                else:
                    score.set_exception(found)
            failure = EndpointError("The answer of model prm holds no score.")
        except Exception as error:
            failure = error
        finally:
            for _, score in asked:
                if not score.done():
                    score.set_exception(failure)

    async def _infer_once(self, model: str, request: bytes, least_s: float = 0.0) -> Any:
        self._see_that_it_is_back()
        with _translation(model, self.address):
            async with self._silence.limited(least_s):
                answer = await self._infer(request)
        self._silence.broken()
        self._deaths = 0
        return answer

    def _start(self, row: RequestRow, *, scores: bool = False) -> Sample:
        stopped = self._models["verifier"] if scores else row.template.model
        streams = self._whole.streams(stopped, scores=scores)
        return streams.start_row(row) if self._by_rows else streams.start(row.encode, whole=True)

    async def _sample_once(
        self, model: str, start: Callable[[], Sample], least_s: float = 0.0
    ) -> NewTokens:
        self._see_that_it_is_back()
        with _translation(model, self.address):
            sample = start()
            try:
                async with self._silence.limited(least_s):
                    new = await sample.next()
            finally:
                sample.cancel()
        self._deaths = 0
        return new

    def _token_channel(self) -> _Channel:
        """That of single tokens, a new one after a failure.

        gRPC waits, more and more, before it connects again to what was not there.
        """
        channel = self._tokens
        if channel and channel.broken and not channel.running:
            closing = asyncio.ensure_future(channel.aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            channel = None
        if channel is None:
            # without an option of its own gRPC gives channels to one address the same connection
            own = ("grpc.use_local_subchannel_pool", 1)
            channel = self._tokens = _Channel(
                self.address,
                [*_OPTIONS, own],
                self._silence.broken,
                most_streams=TOKEN_STREAMS,
            )
        return channel

    def _see_that_it_is_back(self) -> None:
        if self._down:
            self._down = self._is_coming_back()

    def _comes_back(self) -> bool:
        """Whether it is worth waiting for; EndpointUnavailable if it dies again and again."""
        was_down, self._down = self._down, self._is_coming_back()
        self._deaths += self._down and not was_down
        if self._deaths >= MOST_DEATHS:
            raise EndpointUnavailable(
                f"The server at {self.address} has died {self._deaths} times without an answer.",
                hint="Its log, triton.log in the folder of the server, says why.",
            )
        return self._down


class _Channel:
    """A gRPC channel with its calls."""

    def __init__(
        self,
        address: str,
        options: Sequence[tuple[str, int]],
        on_message: Callable[[], None],
        most_rows: int = 1,
        most_streams: int = 1,
    ) -> None:
        require_unforked("gRPC")
        self._channel = grpc.aio.insecure_channel(address, options=options)
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
        """Those of a model's samples, or of its scores: rows that are answered together have the
        same outputs.
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


class TritonGenerator(StreamingGenerator):
    """A model that writes; see endpoints.StreamingGenerator."""

    def __init__(
        self,
        connection: TritonConnection,
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]],
        end_stop_words: Sequence[tuple[int, ...]] = (),
        model: str = wire.GENERATOR,
    ) -> None:
        """`step_stop_words` end a step, `end_stop_words` end a sequence as `end_id` does."""
        self._connection = connection
        self._model = model
        self._end_id = end_id
        self._step_stop_words = tuple(step_stop_words)
        self._end_stop_words = tuple(end_stop_words)
        self._template = lru_cache(maxsize=256)(self._new_template)

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; retried."""
        return await self._connection.generate(self._row(call, None))

    def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator."""
        flags = call.streaming, call.log_probs
        return self._connection.stream(self._row(call, flags))

    def _row(self, call: GenerateCall, flags: tuple[bool, bool] | None) -> RequestRow:
        """The request for it; without flags it is answered once."""
        guide, ids = call.guide, call.input_ids
        scalars: list[float] = [len(ids), call.max_new_tokens]
        draw: Draw = "greedy"
        if call.temperature != 0:
            draw = "all"
            scalars += (call.temperature, call.top_p, call.seed)
            if call.top_k:
                draw = "top_k"
                scalars.append(call.top_k)
        shaping: tuple[tuple[str, float], ...] = ()
        host = self._connection.host
        engine = "the OpenVINO engine" if host else "TensorRT-LLM's model"
        refuse_top(call, engine)
        if call.shaping:
            known = HOST_SHAPING if host else WIRE_SHAPING
            shaping = tuple(shaped(call, known, engine).items())
        template = self._template(
            call.stop_at_step,
            call.stop_words,
            call.ignore_end,
            draw,
            guide is not None,
            flags,
            shaping,
        )
        return RequestRow(template, ids, scalars, guide or ())

    def _new_template(
        self,
        at_step: bool,
        stop_words: tuple[tuple[int, ...], ...],
        ignore_end: bool,
        draw: Draw,
        guided: bool,
        flags: tuple[bool, bool] | None,
        shaping: tuple[tuple[str, float], ...],
    ) -> RequestTemplate:
        end_id = wire.NO_END_ID if ignore_end else self._end_id
        words = [
            *stop_words,
            *(() if ignore_end else self._end_stop_words),
            *(self._step_stop_words if at_step else ()),
        ]
        return generate_template(
            end_id, words, draw, guided=guided, flags=flags, shaping=shaping, model=self._model
        )


class TritonVerifier:
    """A model that scores; see endpoints.Verifier."""

    def __init__(
        self, connection: TritonConnection, template: RequestTemplate | None = None
    ) -> None:
        """`template` is by default that of `prm` with scores alone."""
        self._connection = connection
        self._template = template or score_template()

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        ids = call.input_ids
        score = await self._connection.score(RequestRow(self._template, ids, [len(ids)]))
        if not -1e-6 <= score <= 1 + 1e-6:  # NaN included
            raise EndpointError(f"The verifier answered {score}, which is no probability.")
        return VerifierResult(min(max(score, 0.0), 1.0))


def _end_if_done(
    task: asyncio.Task[None], asked: list[_AskedScore], score: asyncio.Future[float]
) -> None:
    """End a request for scores that are no longer awaited."""
    if all(score.done() for _, score in asked):
        task.cancel()


def _scores_of(answer: Any) -> Iterator[tuple[int, float | Exception]]:
    """The scores of rows, by number, or why there are none."""
    names = (output.name for output in answer.outputs)
    raw = dict(zip(names, answer.raw_output_contents, strict=False))
    numbers = np.frombuffer(_output(answer, wire.BATCH_INDEX), "<i4").tolist()
    errors = wire.decode_texts(raw[wire.ERROR]) if wire.ERROR in raw else [""] * len(numbers)
    scores = np.frombuffer(raw.get("score", b""), "<f4").tolist() or [math.nan] * len(numbers)
    for number, score, error in zip(numbers, scores, errors, strict=True):
        yield number, ErrorAnswer(error) if error else score


def _output(answer: Any, name: str) -> bytes:
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=False):
        if output.name == name:
            return bytes(raw)
    raise EndpointError(f"The answer of model {answer.model_name} holds no output {name!r}.")
