"""The gRPC channels to one Triton server, and scores that share a request.

Whole answers share one connection; scores that are asked for in one tick of the event loop are rows
of one request. Streams of single tokens have another connection, opened when it is first needed:
HTTP/2 sends all requests of one connection through one socket, so a token would wait behind the
long prompts of a search.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tts.base.errors import EndpointError
from tts.base.owner import require_unforked
from tts.engines import wire

from .together import TickBatcher
from .triton_errors import ErrorAnswer, Translation
from .triton_requests import RequestRow, RequestTemplate
from .triton_stream import Streams

_SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own limit is 2 minutes: a server that is back would be called gone
    ("grpc.max_reconnect_backoff_ms", 1000),
)

translation = lru_cache(maxsize=64)(Translation)  # it holds no state


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
        """The streams of a model's samples, or of its scores, which have other outputs."""
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

    def __init__(
        self, address: str, infer: Callable[[bytes], Awaitable[Any]], most_rows: int
    ) -> None:
        """`infer` answers a request, which may have `most_rows` rows."""
        self._address, self._infer = address, infer
        self._batcher = TickBatcher(self._send, most_rows)
        self._requests: set[asyncio.Task[None]] = set()

    async def score(self, row: RequestRow) -> float:
        """The verifier's score of a chain, once. Raises EndpointError."""
        score: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._batcher.add(row.template, (row, score))
        with translation(wire.PRM, self._address):
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
            answer = await self._infer(template.encode("", [row for row, _ in rows], 0))
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
    raw = contents_of(answer, wire.BATCH_INDEX)
    numbers = np.frombuffer(raw[wire.BATCH_INDEX], "<i4").tolist()
    errors = wire.decode_texts(raw[wire.ERROR]) if wire.ERROR in raw else [""] * len(numbers)
    scores = np.frombuffer(raw.get("score", b""), "<f4").tolist() or [math.nan] * len(numbers)
    for number, score, error in zip(numbers, scores, errors, strict=True):
        yield number, ErrorAnswer(error) if error else score


def contents_of(answer: Any, needed: str) -> dict[str, bytes]:
    """The raw contents of the outputs by name; EndpointError for an answer without one of them."""
    names = (output.name for output in answer.outputs)
    contents = dict(zip(names, answer.raw_output_contents, strict=False))
    if needed not in contents:
        raise EndpointError(f"The answer of model {answer.model_name} holds no output {needed!r}.")
    return contents
