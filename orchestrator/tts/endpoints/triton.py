"""The generator and the verifier behind a Triton server, over one asyncio gRPC channel.

Requests are built from Triton's own protobuf messages: a template per kind of request is copied
and only what varies is filled in. The generator is a decoupled model, which takes requests only by
stream; cancelling the awaiting task cancels the request on the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.build.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.compat import Self
from tts.compat.aio import timeout
from tts.engines import wire

from .base import GenerateCall, ScoreCall, VerifierResult
from .retry import LONGEST_WAIT_S, retried
from .triton_stream import SharedStream

REQUEST_TIMEOUT_S = 120.0
RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""

T = TypeVar("T")


class TritonConnection:
    """One gRPC channel to a server, shared by both endpoints; an async context manager."""

    def __init__(self, address: str, comes_back: Callable[[], bool] = lambda: False) -> None:
        """`address` is `host:port` or `unix:path` of the gRPC endpoint.

        `comes_back` says whether a server that is gone is being started again (see `retried`).
        """
        self.address = address
        self._comes_back = comes_back
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # gRPC's own limit is 2 minutes: a server that is back would be called gone
                ("grpc.max_reconnect_backoff_ms", int(1000 * LONGEST_WAIT_S)),
            ],
        )
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._stream: SharedStream | None = None
        self._streams: set[SharedStream] = set()
        """Those that have not ended, the present one included."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.close()
        for stream in self._streams:
            await stream.wait_closed()

    async def infer(self, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """One unary request; retried. Raises EndpointError."""
        return await self._retried(
            request.model_name,
            lambda: self._stub.ModelInfer(request, timeout=timeout_s),
        )

    async def infer_decoupled(self, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """One request to a decoupled model that answers once; retried. Raises EndpointError."""
        return await self._retried(request.model_name, lambda: self._stream_one(request, timeout_s))

    async def reset_prefix_caches(self) -> bool:
        """Leave both engines of target openvino as they were when the server was ready.

        False if one of them holds requests. Raises EndpointError.
        """
        try:
            await self.infer_decoupled(_reset_request(wire.GENERATOR), RESET_TIMEOUT_S)
            await self.infer(_reset_request(wire.PRM_ENGINE), RESET_TIMEOUT_S)
        except RequestRefused as error:
            if wire.IN_FLIGHT in error.message:
                return False
            raise
        return True

    async def _stream_one(self, request: Any, timeout_s: float) -> Any:
        if self._stream is None or not self._stream.open:
            self._streams = {stream for stream in self._streams if not stream.ended}
            self._stream = SharedStream(self._stub.ModelStreamInfer())
            self._streams.add(self._stream)
        try:
            async with timeout(timeout_s):
                answer = await self._stream.infer(request)
        except TimeoutError:
            raise _timed_out(request.model_name, self.address) from None
        if answer.error_message:
            raise _refused(request.model_name, answer.error_message)
        return answer.infer_response

    async def _retried(self, model: str, attempt: Callable[[], Awaitable[T]]) -> T:
        async def translated() -> T:
            try:
                return await attempt()
            except grpc.aio.AioRpcError as error:
                raise _translate(model, self.address, error) from error

        return await retried(translated, self._comes_back)


class TritonGenerator:
    """The `generator` model; see endpoints.Generator."""

    def __init__(
        self,
        connection: TritonConnection,
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]],
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> None:
        """`step_stop_words` end a step, `end_stop_words` end a sequence as `end_id` does."""
        self._connection = connection
        self._templates = {
            (stop, greedy, guided): _generate_template(
                end_id,
                [*end_stop_words, *(step_stop_words if stop else ())],
                greedy=greedy,
                guided=guided,
            )
            for stop in (True, False)
            for greedy in (True, False)
            for guided in (True, False)
        }

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        greedy = call.temperature == 0
        template, fixed = self._templates[call.stop_at_step, greedy, call.guide is not None]
        request = service_pb2.ModelInferRequest()
        request.CopyFrom(template)
        ids = np.ascontiguousarray(call.input_ids, dtype=np.int32)
        request.inputs[0].shape[1] = len(ids)
        varying = [ids.tobytes(), _int32(len(ids)), _int32(call.max_new_tokens)]
        if not greedy:
            varying += [
                np.float32(call.temperature).tobytes(),
                np.float32(call.top_p).tobytes(),
                np.uint64(call.seed).tobytes(),
            ]
        if call.guide is not None:
            varying += [wire.encode_text(wire.GUIDE_TYPE), wire.encode_text(call.guide)]
        request.raw_input_contents.extend(varying + fixed)
        answer = await self._connection.infer_decoupled(request)
        output = np.frombuffer(_output(answer, "output_ids"), dtype=np.int32)
        (length,) = np.frombuffer(_output(answer, "sequence_length"), dtype=np.int32)
        tokens: list[int] = output[:length].tolist()
        return tokens


class TritonVerifier:
    """The `prm` ensemble; see endpoints.Verifier."""

    def __init__(self, connection: TritonConnection) -> None:
        self._connection = connection
        self._template = service_pb2.ModelInferRequest(model_name=wire.PRM)
        _add_input(self._template, "input_ids", [1, 0])
        _add_input(self._template, "input_lengths")
        _add_input(self._template, "request_output_len")
        _add_input(self._template, "return_generation_logits")
        self._template.outputs.add(name="score")
        self._fixed = [_int32(1), b"\x01"]

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        request = service_pb2.ModelInferRequest()
        request.CopyFrom(self._template)
        ids = np.ascontiguousarray(call.input_ids, dtype=np.int32)
        request.inputs[0].shape[1] = len(ids)
        request.raw_input_contents.extend([ids.tobytes(), _int32(len(ids)), *self._fixed])
        answer = await self._connection.infer(request)
        (score,) = np.frombuffer(_output(answer, "score"), dtype=np.float32)
        if not -1e-6 <= score <= 1 + 1e-6:  # NaN included
            raise EndpointError(f"The verifier answered {score}, which is no probability.")
        return VerifierResult(float(min(max(score, 0.0), 1.0)))


def _generate_template(
    end_id: int, stop_words: Sequence[tuple[int, ...]], *, greedy: bool, guided: bool
) -> tuple[Any, list[bytes]]:
    """A request without its varying values, and the raw contents that follow them.

    The varying inputs come first: ids, length, output length and, unless greedy (no top_k and no
    top_p means greedy on the wire), temperature, top_p and seed; then the guide's type and text.
    """
    request = service_pb2.ModelInferRequest(model_name=wire.GENERATOR)
    _add_input(request, "input_ids", [1, 0])
    _add_input(request, "input_lengths")
    _add_input(request, "request_output_len")
    if not greedy:
        _add_input(request, "temperature")
        _add_input(request, "runtime_top_p")
        _add_input(request, "seed")
    if guided:
        _add_input(request, "guided_decoding_guide_type")
        _add_input(request, "guided_decoding_guide")
    _add_input(request, "end_id")
    _add_input(request, "exclude_input_in_output")
    fixed = [_int32(end_id), b"\x01"]
    if stop_words:
        layout = wire.encode_stop_words(stop_words)
        _add_input(request, "stop_words_list", [1, *layout.shape])
        fixed.append(layout.tobytes())
    request.outputs.add(name="output_ids")
    request.outputs.add(name="sequence_length")
    return request, fixed


def _reset_request(model: str) -> Any:
    """A request for one token that finds an empty cache, as the first one of a server does."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    inputs = {"input_ids": 0, "input_lengths": 1, "request_output_len": 1}
    if model == wire.PRM_ENGINE:
        inputs["return_generation_logits"] = 1
    for name, value in inputs.items():
        _add_input(request, name)
        request.raw_input_contents.append(wire.scalar(name, value).tobytes())
    return request


def _add_input(request: Any, name: str, shape: Sequence[int] = (1, 1)) -> None:
    request.inputs.add(name=name, datatype=wire.INPUTS[name], shape=shape)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _output(answer: Any, name: str) -> bytes:
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=False):
        if output.name == name:
            return bytes(raw)
    raise EndpointError(f"The answer of model {answer.model_name} holds no output {name!r}.")


_GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.OK}


def _translate(model: str, address: str, error: grpc.aio.AioRpcError) -> EndpointError:
    """The one place where gRPC's errors become ours."""
    details = error.details() or error.code().name
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _timed_out(model, address)
    if error.code() in _GONE:
        return EndpointUnavailable(f"The server at {address} is gone: {details}")
    return _refused(model, details)


def _timed_out(model: str, address: str) -> EndpointTimeout:
    return EndpointTimeout(
        f"Model {model} at {address} did not answer within {REQUEST_TIMEOUT_S:.0f} s."
    )


# What a refusal says when the engine or its process broke under the request, or its server is
# stopping in order, perhaps to be replaced; sending it again may help. A stream carries no status
# code, so the words are all there is.
_BROKEN = (
    "Stub process",
    "the engine failed",
    "the engine is shutting down",
    "Server is stopping",
    "has no available versions",
    "the request was cancelled",  # by a stop request: what this client cancels it awaits no more
    "requests wait for this engine",
    "Internal error from Core",  # gRPC's own, at times, for a connection that broke
)


def _refused(model: str, message: str) -> EndpointError:
    if any(words in message for words in _BROKEN):
        return EndpointUnavailable(f"Model {model} broke under a request: {message}")
    return RequestRefused(f"Model {model} refused a request: {message}")
