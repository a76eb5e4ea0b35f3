"""Samples of the generator token by token, for callers that pass text on while it is written.

Requests share gRPC streams as those of a search do (`triton_stream`), but each has any number of
answers. What has come of a request since it was last read is handed over together, so a reader
that falls behind takes more at a time, and the first token waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import grpc
import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2

from tts.build.errors import EndpointError
from tts.build.owner import require_unforked
from tts.engines import wire

from .triton import REQUEST_TIMEOUT_S, STREAM_METHOD
from .triton_errors import error_of_status, error_of_text
from .triton_requests import Constant, RequestTemplate
from .triton_stream import StreamCall, status_of

_FINAL = "triton_final_response"
"""The parameter of an answer that says whether it is the request's last (Triton's gRPC server)."""


PIECE_S = 100e-6
"""Twice what passing on a piece of text costs a process. While n requests run, each is given its
tokens at most once in n times that, so that under load one piece has several rather than all come
late."""
SHORTEST_WAIT_S = 0.5e-3
"""Waiting less is not worth a timer."""


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One sample. `input_ids` is int32 [length]; greedy if `temperature` is 0."""

    input_ids: npt.NDArray[np.int32]
    max_new_tokens: int
    end_id: int
    """This token ends the output and is not part of it; wire.NO_END_ID: none does."""
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0: any token may be drawn."""
    stop_words: tuple[tuple[int, ...], ...] = ()
    """The output ends with any of these, which is part of it."""
    log_probs: bool = False
    streaming: bool = True
    """Whether tokens are handed over as they come, rather than all at the end."""


@dataclass(frozen=True, slots=True)
class NewTokens:
    """What a request has given since it was last read."""

    ids: list[int]
    log_probs: list[float]
    """Of `ids`, if they were asked for: natural logarithms."""
    final: bool
    """Whether the output ends here."""


class TokenRun:
    """A sample while it is generated. Read it until `final`, or cancel it."""

    def __init__(self, stream: _Stream, number: str) -> None:
        self._stream = stream
        self._number = number
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self._final = False
        self._failure: EndpointError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = 0.0
        """When its reader was last woken; 0: never, so that the first token waits for nothing."""
        self._alarm: asyncio.TimerHandle | None = None

    async def next(self) -> NewTokens:
        """What is new, as soon as anything is. Raises EndpointError."""
        if not (self._ids or self._final or self._failure):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._failure and not self._ids:
            raise self._failure
        new = NewTokens(self._ids, self._log_probs, self._final)
        self._ids, self._log_probs = [], []
        return new

    def cancel(self) -> None:
        """End it on the engine, if it has not ended; it gives nothing more."""
        if not (self._final or self._failure):
            self._final = True
            self._stream.stop(self._number)

    def take(self, ids: list[int], log_probs: list[float], *, final: bool) -> None:
        """Take in one answer; called by its stream."""
        self._ids += ids
        self._log_probs += log_probs[len(log_probs) - len(ids) :]  # TensorRT-LLM's are cumulative
        self._final = final
        self._wake()

    def fail(self, failure: EndpointError) -> None:
        """It ends with an error; called by its stream."""
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is None or self._waiter.done():
            return
        ends = self._final or self._failure is not None  # nothing more is worth a wait
        if self._alarm and not ends:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = self._woken + self._stream.load() * PIECE_S
        if ends or due - now < SHORTEST_WAIT_S:
            self._ring(now)
        else:
            self._alarm = loop.call_at(due, self._ring, due)

    def _ring(self, now: float) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if self._waiter and not self._waiter.done():
            self._woken = now
            self._waiter.set_result(None)


class TokenStreams:
    """The streams to one server's generator; closed by `aclose`."""

    def __init__(self, address: str) -> None:
        """`address` is `host:port` or `unix:path` of the gRPC endpoint."""
        self.address = address
        require_unforked("gRPC")
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_reconnect_backoff_ms", 1000),
                # a connection of its own: what streams tokens does not wait behind a search
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self._open = self._channel.stream_stream(
            STREAM_METHOD,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self._stream: _Stream | None = None
        self._streams: set[_Stream] = set()

    async def aclose(self) -> None:
        """End what runs, and let go of the connection."""
        await self._channel.close()
        for stream in self._streams:
            await stream.wait_closed()

    def start(self, call: TokenCall) -> TokenRun:
        """Send a request."""
        if self._stream is None or not self._stream.open:
            self._streams = {stream for stream in self._streams if not stream.ended}
            self._stream = _Stream(self._open(), self.address, self._load)
            self._streams.add(self._stream)
        return self._stream.start(call)

    def _load(self) -> int:
        """Requests that run."""
        return sum(stream.running for stream in self._streams)


class _Stream(StreamCall):
    """One ModelStreamInfer call with any number of requests, each with any number of answers."""

    def __init__(self, call: Any, address: str, load: Callable[[], int]) -> None:
        super().__init__(call)
        self.load = load
        """Requests that run on all streams."""
        self._address = address
        self._running: dict[str, TokenRun] = {}

    @property
    def running(self) -> int:
        """Requests that run."""
        return len(self._running)

    def start(self, call: TokenCall) -> TokenRun:
        """Send a request."""
        number = self._send(partial(_encode, call))
        run = self._running[number] = TokenRun(self, number)
        return run

    def stop(self, number: str) -> None:
        """Stop a request on the engine, if it runs."""
        if self._running.pop(number, None):
            self._send_stop(wire.GENERATOR, number)
            self._end_if_used_up(self._running)

    async def _read(self) -> None:
        failure: EndpointError | None = None
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._take(message)
            failure = self._error(await status_of(self._call))
        except grpc.aio.AioRpcError as error:
            failure = self._error(error)
        except asyncio.CancelledError:  # the channel was closed here
            pass
        finally:
            self._broken = True
            self._writer.cancel()
            failure = failure or EndpointError("The connection to the server was closed.")
            for run in self._running.values():
                run.fail(failure)
            self._running.clear()

    def _error(self, status: grpc.aio.AioRpcError) -> EndpointError:
        return error_of_status(wire.GENERATOR, self._address, status, REQUEST_TIMEOUT_S)

    def _take(self, message: Any) -> None:
        answer = message.infer_response
        run = self._running.get(answer.id)
        if run is None:  # cancelled
            return
        if message.error_message:
            run.fail(error_of_text(wire.GENERATOR, message.error_message))
            final = True
        else:
            final = answer.parameters[_FINAL].bool_param
            ids, log_probs = _tokens(answer)
            run.take(ids, log_probs, final=final)
        if final:
            del self._running[answer.id]
            self._end_if_used_up(self._running)


def _tokens(answer: Any) -> tuple[list[int], list[float]]:
    """Token ids and log-probabilities in one answer; a last one may hold no outputs at all."""
    outputs, contents = answer.outputs, answer.raw_output_contents
    if len(outputs) == 2 and outputs[0].name == "output_ids" and len(contents[0]) == 4:
        return [int.from_bytes(contents[0], "little")], []  # one token, as nearly always
    ids: list[int] = []
    log_probs: list[float] = []
    length = None
    for output, raw in zip(outputs, contents, strict=False):
        if output.name == "output_ids":
            ids = np.frombuffer(raw, dtype=np.int32).tolist()
        elif output.name == "sequence_length":
            length = int.from_bytes(raw, "little")
        elif output.name == "output_log_probs":
            log_probs = np.frombuffer(raw, dtype=np.float32).tolist()
    return ids[:length], log_probs


def _encode(call: TokenCall, number: str) -> bytes:
    """The request with this id."""
    greedy = call.temperature == 0
    template = _template(
        call.end_id,
        call.stop_words,
        sampling="greedy" if greedy else "top_k" if call.top_k else "all",
        log_probs=call.log_probs,
        streaming=call.streaming,
    )
    scalars: list[float] = [len(call.input_ids), call.max_new_tokens]
    if not greedy:
        scalars += [call.temperature, call.top_p, call.seed]
        if call.top_k:
            scalars.append(call.top_k)
    return template.encode(number, call.input_ids, scalars)


@lru_cache(maxsize=256)
def _template(
    end_id: int,
    stop_words: tuple[tuple[int, ...], ...],
    *,
    sampling: Literal["greedy", "top_k", "all"],
    log_probs: bool,
    streaming: bool,
) -> RequestTemplate:
    """What requests have in common; neither top_p nor top_k means greedy on the wire."""
    flags = {
        "exclude_input_in_output": True,
        "streaming": streaming,
        "return_log_probs": log_probs,
        "end_id": end_id,
    }
    constants = [Constant(name, wire.scalar(name, flag).tobytes()) for name, flag in flags.items()]
    if stop_words:
        layout = wire.encode_stop_words(stop_words)
        constants.append(Constant("stop_words_list", layout.tobytes(), (1, *layout.shape)))
    drawn = ["temperature", "runtime_top_p", "seed", "runtime_top_k"]
    varying = {"greedy": [], "all": drawn[:3], "top_k": drawn}[sampling]
    return RequestTemplate(
        wire.GENERATOR,
        scalars=["input_lengths", "request_output_len", *varying],
        constants=constants,
        outputs=["output_ids", "sequence_length", *(["output_log_probs"] * log_probs)],
    )
