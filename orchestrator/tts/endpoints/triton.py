"""The generator and the verifier behind a Triton server, over one asyncio gRPC channel.

Requests are encoded from templates (`triton_requests`), answers are Triton's own protobuf messages.
The generator is a decoupled model, which takes requests only by stream; cancelling the awaiting
task cancels the request on the engine.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tts.build.errors import EndpointError, EndpointUnavailable
from tts.build.owner import require_unforked
from tts.compat import Self
from tts.engines import wire

from .base import GenerateCall, ScoreCall, VerifierResult
from .retry import PATIENCE_S, retried
from .triton_errors import EngineInUse, error_of_status, error_of_text, timed_out
from .triton_requests import Constant, RequestTemplate
from .triton_stream import Encode, SharedStream

REQUEST_TIMEOUT_S = 120.0
RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""
MOST_DEATHS = 3
"""What has died so often without an answer in between would die again."""

_SERVICE = "/inference.GRPCInferenceService"
STREAM_METHOD = f"{_SERVICE}/ModelStreamInfer"

T = TypeVar("T")


class TritonConnection:
    """One gRPC channel to a server, shared by both endpoints; an async context manager."""

    def __init__(self, address: str, comes_back: Callable[[], bool] = lambda: False) -> None:
        """`address` is `host:port` or `unix:path` of the gRPC endpoint.

        `comes_back` says whether a server that is gone is being started again (see `retried`).
        """
        self.address = address
        self.patience_s = PATIENCE_S
        """How long a request is sent again; less where another server can take it."""
        self._is_coming_back = comes_back
        self._down = False
        """Whether it was coming back when it was last asked after."""
        self._deaths = 0
        """How often it has gone since it last answered."""
        require_unforked("gRPC")
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # gRPC's own limit is 2 minutes: a server that is back would be called gone
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self._infer = self._channel.unary_unary(
            f"{_SERVICE}/ModelInfer",
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        self._open_stream = self._channel.stream_stream(
            STREAM_METHOD,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
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

    async def infer(self, model: str, request: bytes, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """One unary request, as a ModelInferRequest's bytes; retried. Raises EndpointError."""
        return await self._retried(
            model, lambda: self._infer(request, timeout=timeout_s), timeout_s
        )

    async def infer_decoupled(
        self, model: str, encode: Encode, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """One request to a decoupled model that answers once; retried. Raises EndpointError.

        `encode` gives the request's bytes with the id that is passed to it.
        """
        return await self._retried(
            model, lambda: self._stream_one(model, encode, timeout_s), timeout_s
        )

    async def reset_prefix_caches(self) -> bool:
        """Leave both engines of target openvino as they were when the server was ready.

        False if one of them holds requests. Raises EndpointError.
        """
        try:
            generator = partial(_reset_request, wire.GENERATOR)
            await self.infer_decoupled(wire.GENERATOR, generator, RESET_TIMEOUT_S)
            verifier = _reset_request(wire.PRM_ENGINE)
            await self.infer(wire.PRM_ENGINE, verifier, RESET_TIMEOUT_S)
        except EngineInUse:
            return False
        return True

    async def _stream_one(self, model: str, encode: Encode, timeout_s: float) -> Any:
        if self._stream is None or not self._stream.open:
            self._streams = {stream for stream in self._streams if not stream.ended}
            self._stream = SharedStream(self._open_stream())
            self._streams.add(self._stream)
        try:
            answer = await self._stream.infer(model, encode, timeout_s)
        except TimeoutError:
            raise timed_out(model, self.address, timeout_s) from None
        if answer.error_message:
            raise error_of_text(model, answer.error_message)
        return answer.infer_response

    async def _retried(
        self, model: str, attempt: Callable[[], Awaitable[T]], timeout_s: float
    ) -> T:
        async def translated() -> T:
            if self._down:
                self._down = self._is_coming_back()
            try:
                answer = await attempt()
            except grpc.aio.AioRpcError as error:
                raise error_of_status(model, self.address, error, timeout_s) from error
            self._deaths = 0
            return answer

        return await retried(translated, self._comes_back, self.patience_s)

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
        greedy, guided = call.temperature == 0, call.guide is not None
        template = self._templates[call.stop_at_step, greedy, guided]
        ids = call.input_ids
        scalars: list[float] = [len(ids), call.max_new_tokens]
        if not greedy:
            scalars += [call.temperature, call.top_p, call.seed]
        texts = () if call.guide is None else (wire.GUIDE_TYPE, call.guide)

        def encode(number: str) -> bytes:
            return template.encode(number, ids, scalars, texts)

        answer = await self._connection.infer_decoupled(template.model, encode)
        (length,) = _INT32.unpack(_output(answer, "sequence_length"))
        output = np.frombuffer(_output(answer, "output_ids"), dtype=np.int32)
        tokens: list[int] = output[:length].tolist()
        return tokens


class TritonVerifier:
    """The `prm` ensemble; see endpoints.Verifier."""

    def __init__(self, connection: TritonConnection) -> None:
        self._connection = connection
        self._template = RequestTemplate(
            wire.PRM,
            scalars=["input_lengths"],
            constants=[
                Constant("request_output_len", _INT32.pack(1)),
                Constant("return_generation_logits", b"\x01"),
            ],
            outputs=["score"],
        )

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        ids = call.input_ids
        request = self._template.encode("", ids, [len(ids)])
        answer = await self._connection.infer(wire.PRM, request)
        (score,) = _FP32.unpack(_output(answer, "score"))
        if not -1e-6 <= score <= 1 + 1e-6:  # NaN included
            raise EndpointError(f"The verifier answered {score}, which is no probability.")
        return VerifierResult(min(max(score, 0.0), 1.0))


def _generate_template(
    end_id: int, stop_words: Sequence[tuple[int, ...]], *, greedy: bool, guided: bool
) -> RequestTemplate:
    """Greedy is a request without temperature: no top_k and no top_p mean greedy on the wire."""
    constants = [
        Constant("end_id", _INT32.pack(end_id)),
        Constant("exclude_input_in_output", b"\x01"),
    ]
    if stop_words:
        layout = wire.encode_stop_words(stop_words)
        constants.append(Constant("stop_words_list", layout.tobytes(), (1, *layout.shape)))
    sampling = () if greedy else ("temperature", "runtime_top_p", "seed")
    return RequestTemplate(
        wire.GENERATOR,
        scalars=["input_lengths", "request_output_len", *sampling],
        constants=constants,
        texts=["guided_decoding_guide_type", "guided_decoding_guide"] if guided else [],
        outputs=["output_ids", "sequence_length"],
    )


def _reset_request(model: str, number: str = "") -> bytes:
    """A request for one token that finds an empty cache, as the first one of a server does."""
    request = service_pb2.ModelInferRequest(model_name=model, id=number)
    request.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    inputs = {"input_ids": 0, "input_lengths": 1, "request_output_len": 1}
    if model == wire.PRM_ENGINE:
        inputs["return_generation_logits"] = 1
    for name, value in inputs.items():
        request.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        request.raw_input_contents.append(wire.scalar(name, value).tobytes())
    data: bytes = request.SerializeToString()
    return data


def _output(answer: Any, name: str) -> bytes:
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=False):
        if output.name == name:
            return bytes(raw)
    raise EndpointError(f"The answer of model {answer.model_name} holds no output {name!r}.")


_INT32 = struct.Struct("<i")
_FP32 = struct.Struct("<f")
