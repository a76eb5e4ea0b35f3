"""Samples that share gRPC streams; answers find theirs by request id.

Opening a stream costs both sides more than a request on it. Cancelling a shared stream would cancel
everything on it, so a request is cancelled as TensorRT-LLM has it: by a second one with the same id
and the tensor `stop`. All tokens that have arrived since the last read are handed over together, so
a slow reader takes more at a time, and the first token waits for nothing. No IO but the calls'.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from tts.base.errors import EndpointError
from tts.engines import wire

from .base import REST_S
from .streaming import NewTokens
from .together import TickBatcher
from .triton_errors import ErrorAnswer
from .triton_requests import Encode, RequestRow, RequestTemplate, stop_request

REQUESTS_PER_STREAM = 64
"""Then another is opened: what spreads streams over several servers can still spread the load."""
PIECE_S = 200e-6
"""Four times what passing on a piece of text costs a process. While n requests run, each is given
its tokens at most once in n times that, so that under load one piece has several rather than all
come late."""
LONGEST_WAIT_S = 25e-3
"""However many run: forty pieces a second read as a flow."""
SHORTEST_WAIT_S = 0.5e-3
"""Waiting less is not worth a timer."""
_FINAL = "triton_final_response"
"""The parameter of an answer that says whether it is the request's last (Triton's gRPC server)."""


class Streams:
    """The streams of one channel. A sample starts on an idle one, or opens one, or shares."""

    def __init__(
        self,
        open_call: Callable[[], Any],
        most_rows: int = 1,
        most_streams: int = 1,
        on_message: Callable[[], None] = lambda: None,
        model: str = wire.GENERATOR,
    ) -> None:
        """`open_call` opens a ModelStreamInfer call; `on_message` is called when something comes.

        `most_rows` is how many samples one request may ask for, `most_streams` how many streams
        take requests at a time: rows of one stream can be answered together, and single tokens of
        several are read together. `model` is whose samples they are: a stream holds those of one.
        """
        self._open_call = open_call
        self._on_message = on_message
        self._model = model
        self._most_streams = most_streams
        self._batcher = TickBatcher(self._send_rows, most_rows)
        self._streams: list[_Stream] = []
        """Streams that had not ended when one was last needed."""

    def start(self, encode: Encode, *, whole: bool) -> Sample:
        """Send a request; `whole` says that its first answer is its last."""
        sample = Sample(self, whole=whole)
        self._open_stream().start(encode, sample)
        return sample

    def start_row(self, row: RequestRow) -> Sample:
        """Send what is asked for once, together with others of this tick of the event loop."""
        sample = Sample(self, whole=True)
        self._batcher.add(row.template, (row, sample))
        return sample

    @property
    def running(self) -> int:
        """How many samples run."""
        return sum(len(stream.samples) for stream in self._streams)

    @property
    def broken(self) -> bool:
        """Whether a stream has ended before its time, and no sample was started since."""
        return any(stream.broken for stream in self._streams)

    def _send_rows(self, template: RequestTemplate, rows: list[tuple[RequestRow, Sample]]) -> None:
        if awaited := [(row, sample) for row, sample in rows if not sample.final]:
            self._open_stream().start_rows(template, awaited)

    def _open_stream(self) -> _Stream:
        """The stream that the next request goes to."""
        self._streams = [stream for stream in self._streams if not stream.is_over]
        taking = [stream for stream in self._streams if stream.vacancies and not stream.broken]
        least = min(taking, key=lambda stream: len(stream.samples), default=None)
        if least and (not least.samples or len(taking) >= self._most_streams):
            return least
        self._streams.append(_Stream(self._open_call(), self._on_message, self._model))
        return self._streams[-1]

    async def wait_closed(self) -> None:
        """Wait until all streams have ended; their channel is closed, or every answer has come."""
        for stream in self._streams:
            await stream.wait_closed()


class Sample:
    """One request while it is answered. Read it until `final`, and cancel it in any case."""

    def __init__(self, streams: Streams, *, whole: bool) -> None:
        self._streams = streams
        self.whole = whole
        self._sent: tuple[_Stream, int] | None = None
        """Where it was sent, and its number there."""
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        """The tokens' own; of a score, which is one token, its two logits, or the score itself."""
        self.final = False
        """Whether it has ended, or is wanted no more."""
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = -math.inf
        """When its reader was last woken; never, at first: the first token waits for nothing."""
        self._alarm: asyncio.TimerHandle | None = None

    async def next(self) -> NewTokens:
        """New tokens as soon as there are any; raises what ended the sample or its stream."""
        if not (self._ids or self.final or self._failure):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._failure and not self._ids:
            raise self._failure
        new = NewTokens(self._ids, self._log_probs, self.final)
        self._ids, self._log_probs = [], []
        return new

    def cancel(self) -> None:
        """End it on the engine, if it has not ended; it gives nothing more."""
        if not self.final:
            self.final = True
            if self._sent:
                stream, number = self._sent
                stream.stop(number)

    async def rest(self) -> int:
        """The number of tokens that nobody has read, when it has ended on the engine."""
        if self._sent:
            stream, number = self._sent
            await stream.stopped(number)
        return len(self._ids)

    def place(self, stream: _Stream, number: int) -> None:
        """Note that it was sent on a stream, and has this number there."""
        self._sent = stream, number

    def take(self, answer: Any) -> bool:
        """Take in a ModelInferResponse; whether it is the last. EndpointError: it has no tokens."""
        whole = self.whole
        ids, log_probs = _tokens(answer, whole=whole)
        if log_probs and not whole:  # TensorRT-LLM's are those of the whole output so far
            log_probs = log_probs[len(log_probs) - len(ids) :]
        self.give(ids, log_probs, final=whole or answer.parameters[_FINAL].bool_param)
        return self.final

    def give(self, ids: list[int], log_probs: list[float], *, final: bool) -> None:
        """Take in tokens."""
        self._ids += ids
        self._log_probs += log_probs
        self.final = final
        self._wake()

    def fail(self, failure: Exception) -> None:
        """It ends with an error, unless it has ended."""
        if not self.final:
            self._failure = failure
            self._wake()

    def _wake(self) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if self.final or self._failure is not None:  # nothing more is worth a wait
            if self._alarm:
                self._alarm.cancel()
            self._waiter.set_result(None)
        elif self._alarm is None:
            loop = asyncio.get_running_loop()
            now = loop.time()
            due = self._woken + min(self._streams.running * PIECE_S, LONGEST_WAIT_S)
            if due - now < SHORTEST_WAIT_S:
                self._ring(now)
            else:
                self._alarm = loop.call_at(due, self._ring, due)

    def _ring(self, now: float) -> None:
        self._alarm = None
        if self._waiter and not self._waiter.done():
            self._woken = now
            self._waiter.set_result(None)


class _Stream:
    """One ModelStreamInfer call, which samples share."""

    def __init__(self, call: Any, on_message: Callable[[], None], model: str) -> None:
        self._model = model
        self.samples: dict[int, Sample] = {}
        """Samples that run, by number."""
        self._stopping: dict[int, tuple[Sample, asyncio.Future[None]]] = {}
        """Samples that were stopped and have not ended yet, and their ends."""
        self.broken = False
        self.vacancies = REQUESTS_PER_STREAM
        """Number of requests that it still takes."""
        self._call = call
        self._on_message = on_message
        self._name = secrets.token_hex(6)  # another client's ids must not stop our requests
        self._next = 1
        """The next sample's number."""
        self._last_rows: dict[int, int] = {}
        """The last row of each request by rows, by the first."""
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())
        self._reader = asyncio.create_task(self._read())

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self._reader.done() and self._writer.done()

    async def wait_closed(self) -> None:
        """Wait until nothing of it is left."""
        await asyncio.wait({self._reader, self._writer})

    def start(self, encode: Encode, sample: Sample) -> None:
        """Send one more request."""
        number = self._add([sample])
        self._outbox.put_nowait(encode(wire.row_id(self._name, number)))

    def start_rows(self, template: RequestTemplate, rows: list[tuple[RequestRow, Sample]]) -> None:
        """Send one more request, for several samples."""
        first = self._add([sample for _, sample in rows])
        self._last_rows[first] = self._next - 1
        number, requests = wire.rows_id(self._name, first), [row for row, _ in rows]
        self._outbox.put_nowait(template.encode(number, requests, first))

    def _add(self, samples: list[Sample]) -> int:
        """The number of the first of the samples of one more request."""
        first = self._next
        for number, sample in enumerate(samples, first):
            self.samples[number] = sample
            sample.place(self, number)
        self._next += len(samples)
        self.vacancies -= 1
        return first

    def stop(self, number: int) -> None:
        """Stop a request on the engine, if it runs."""
        if sample := self.samples.pop(number, None):
            if not sample.whole:
                self._stopping[number] = sample, asyncio.get_running_loop().create_future()
            self._outbox.put_nowait(stop_request(wire.row_id(self._name, number), self._model))
            self._end_if_used_up()

    async def stopped(self, number: int) -> None:
        """Wait until a request that was stopped has ended, as long as that may take."""
        if number in self._stopping:
            _, end = self._stopping[number]
            await asyncio.wait({end}, timeout=REST_S)
            self._stopping.pop(number, None)

    def _end_if_used_up(self) -> None:
        if not (self.vacancies or self.samples):
            self._outbox.put_nowait(None)

    async def _write(self) -> None:
        try:
            while (message := await self._outbox.get()) is not None:
                await self._call.write(message)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended; the reader says why

    async def _read(self) -> None:
        failure: Exception = EndpointError("The connection to the server was closed.")
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._on_message()
                self._take(message)
            failure = await _status_of(self._call)
        except grpc.aio.AioRpcError as error:
            failure = error
        finally:  # in silence if the channel was closed here
            self.broken = self.vacancies > 0 or bool(self.samples)
            self._writer.cancel()
            for sample in self.samples.values():
                sample.fail(failure)
            self.samples.clear()
            for _, end in self._stopping.values():
                end.cancel()

    def _take(self, message: Any) -> None:
        answer, error = message.infer_response, message.error_message
        number, by_rows, _ = answer.id.rpartition("-")[2].partition("+")
        if not number.isdecimal():  # nothing here has such an id
            return
        if not by_rows:
            self._take_one(int(number), answer, error)
        elif error:
            self._fail_rows(int(number), ErrorAnswer(error))
        else:
            try:
                self._take_rows(answer)
            except EndpointError as failure:
                self._fail_rows(int(number), failure)
        self._end_if_used_up()

    def _take_one(self, number: int, answer: Any, error: str) -> None:
        sample = self.samples.get(number)
        if sample is None:  # it was cancelled
            self._take_rest(number, answer, error)
            return
        if error:
            sample.fail(ErrorAnswer(error))
        else:
            try:
                if not sample.take(answer):
                    return
            except EndpointError as failure:
                sample.fail(failure)
        del self.samples[number]

    def _take_rest(self, number: int, answer: Any, error: str) -> None:
        """Take in what still comes of a stopped request; the stop's own answer holds nothing."""
        if number not in self._stopping:
            return
        sample, end = self._stopping[number]
        if error or (answer.outputs and sample.take(answer)):
            del self._stopping[number]
            if not end.done():
                end.set_result(None)
        sample.final = True

    def _take_rows(self, answer: Any) -> None:
        for number, ids, logits, error in _rows(answer):
            sample = self.samples.pop(number, None)
            if sample is None:  # it was cancelled
                continue
            if error:
                sample.fail(ErrorAnswer(error))
            else:
                sample.give(ids, logits, final=True)

    def _fail_rows(self, first: int, failure: Exception) -> None:
        """A request by rows has failed as a whole: with it what it was to answer, earlier rows."""
        last = self._last_rows[first]
        for number in [number for number in self.samples if number <= last]:
            self.samples.pop(number).fail(failure)


def _tokens(answer: Any, *, whole: bool) -> tuple[list[int], list[float]]:
    """Token ids and log-probabilities of one answer; a last one may hold no outputs at all."""
    outputs, contents = answer.outputs, answer.raw_output_contents
    one = not whole and len(outputs) == 2 and len(contents[0]) == 4  # as nearly always
    if one and outputs[0].name == "output_ids":
        return [int.from_bytes(contents[0], "little")], []
    ids = log_probs = b""
    length: int | None = None
    for output, raw in zip(outputs, contents, strict=False):
        match output.name:
            case "output_ids":
                ids = raw
            case "sequence_length":
                length = int.from_bytes(raw, "little")
            case "output_log_probs" | "generation_logits":
                log_probs = raw
            case "score":
                log_probs, length = raw, 0
    if whole and length is None:
        raise EndpointError(f"The answer of model {answer.model_name} holds no output.")
    tokens: list[int] = np.frombuffer(ids, dtype=np.int32).tolist()
    if length is not None:
        del tokens[length:]
    return tokens, np.frombuffer(log_probs, dtype=np.float32).tolist() if log_probs else []


def _rows(answer: Any) -> Iterator[tuple[int, list[int], list[float], str]]:
    """The rows of an answer: number, ids, logits, error; EndpointError for an answer without."""
    names = (each.name for each in answer.outputs)
    raw = dict(zip(names, answer.raw_output_contents, strict=False))
    try:
        numbers = np.frombuffer(raw[wire.BATCH_INDEX], "<i4").tolist()
        errors = wire.decode_texts(raw[wire.ERROR]) if wire.ERROR in raw else [""] * len(numbers)
        lengths = [0] * len(numbers)
        ids = np.empty((len(numbers), 0), "<i4")
        if "output_ids" in raw:  # else all have failed
            ids = np.frombuffer(raw["output_ids"], "<i4").reshape(len(numbers), -1)
            lengths = np.frombuffer(raw["sequence_length"], "<i4").tolist()
        logits = np.empty((len(numbers), 0), "<f4")
        if "generation_logits" in raw:
            logits = np.frombuffer(raw["generation_logits"], "<f4").reshape(len(numbers), -1)
        rows = list(zip(numbers, ids, lengths, logits, errors, strict=True))
    except (KeyError, ValueError):
        raise EndpointError(f"The answer of model {answer.model_name} has no rows.") from None
    for number, row, length, scored, error in rows:
        yield number, row[:length].tolist(), scored.tolist(), error


async def _status_of(call: Any) -> grpc.aio.AioRpcError:
    """The status of a stream that has ended, as gRPC would raise it."""
    return grpc.aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details() or "the stream ended without an answer",
    )
