"""Scores that are asked for in one tick of the event loop, as the rows of one request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tts.base.errors import EndpointError
from tts.engines import wire

from .tick_batcher import TickBatcher
from .triton_errors import ErrorAnswer
from .triton_requests import RequestRow, RequestTemplate
from .triton_transport import Transport, translation

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
