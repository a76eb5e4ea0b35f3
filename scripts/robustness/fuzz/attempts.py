"""What a client sends and how it behaves, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

from tts.engines import wire

from .requests import MODELS, TEXTS, hostile, set_parameter, valid

SERVICE = "/inference.GRPCInferenceService/"
UNARY = SERVICE + "ModelInfer"
STREAM = SERVICE + "ModelStreamInfer"
CLOSED = {
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest,
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest,
    "SystemSharedMemoryUnregister": service_pb2.SystemSharedMemoryUnregisterRequest,
    "CudaSharedMemoryStatus": service_pb2.CudaSharedMemoryStatusRequest,
    "CudaSharedMemoryRegister": service_pb2.CudaSharedMemoryRegisterRequest,
    "CudaSharedMemoryUnregister": service_pb2.CudaSharedMemoryUnregisterRequest,
    "RepositoryIndex": service_pb2.RepositoryIndexRequest,
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest,
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest,
    "TraceSetting": service_pb2.TraceSettingRequest,
    "LogSettings": service_pb2.LogSettingsRequest,
}
"""What no client may call."""
OPEN = {
    "ServerLive": service_pb2.ServerLiveRequest,
    "ServerReady": service_pb2.ServerReadyRequest,
    "ModelReady": service_pb2.ModelReadyRequest,
    "ServerMetadata": service_pb2.ServerMetadataRequest,
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
    "ModelStatistics": service_pb2.ModelStatisticsRequest,
}


SMALL = 10_000
"""Bytes of what is sent a hundred times at once: Triton keeps the memory of the largest burst."""


@dataclass(frozen=True)
class Attempt:
    """One call of a client."""

    kind: str
    method: str
    """The path of the method, as HTTP/2 carries it."""
    messages: tuple[bytes, ...]
    """What is sent, as bytes: they need not be a message of any type."""
    half_close: bool = True
    """Whether the client says that it has sent everything; else it cancels in the end."""
    cancel_after_s: float | None = None
    """When it gives up; None to wait for the end."""
    metadata: tuple[tuple[str, str], ...] = ()
    times: int = 1
    """How many calls of this kind it makes at the same time."""

    @property
    def streams(self) -> bool:
        """Whether the method takes a stream of messages."""
        return self.method == STREAM

    @property
    def closed(self) -> bool:
        """Whether an answer, of whatever kind but an error, would be a hole."""
        return self.method.removeprefix(SERVICE) in CLOSED


def attempts(seed: int) -> Iterator[Attempt]:
    """Attempts without end; the same for the same seed."""
    for number in count():
        rng = random.Random(f"{seed}/{number}")
        yield rng.choices(list(KINDS), list(KINDS.values()))[0](rng)


def shared_streams(seed: int) -> Iterator[Attempt]:
    """Streams with several requests, without end and by seed; they may end Triton."""
    for number in count():
        yield shared_stream(random.Random(f"{seed}/shared/{number}"))


def one_request(rng: random.Random) -> Attempt:
    """Any model, by the method for single answers."""
    return Attempt("one request", UNARY, (_bytes(hostile(rng.choice(MODELS), rng)),))


def one_stream(rng: random.Random) -> Attempt:
    """One request on a stream of its own."""
    message = _bytes(hostile(rng.choice((wire.GENERATOR, *MODELS)), rng))
    return Attempt("one stream", STREAM, (message,), metadata=_metadata(rng))


def cancelled(rng: random.Random) -> Attempt:
    """A client that gives up: while it waits, with its stream closed by half or open."""
    model = rng.choice(MODELS)
    request = hostile(model, rng) if rng.random() < 0.3 else valid(model, rng.randrange(2**32))
    if model == wire.GENERATOR and len(request.raw_input_contents) > 2:
        request.raw_input_contents[2] = wire.scalar("request_output_len", 250).tobytes()
    method = STREAM if model == wire.GENERATOR or rng.random() < 0.3 else UNARY
    after = rng.choice((0.0, 0.001, 0.01, 0.05, 0.2))
    return Attempt("cancelled", method, (_bytes(request),), rng.random() < 0.5, after)


def empty_stream(rng: random.Random) -> Attempt:
    """A stream without a request, or with an empty one."""
    messages = rng.choice(((), (), (b"",)))
    half_close = rng.random() < 0.7
    return Attempt(
        "empty stream", STREAM, messages, half_close, None if half_close else rng.random() / 5
    )


def many_streams(rng: random.Random) -> Attempt:
    """A hundred streams at once, each with one small request."""
    model = wire.GENERATOR
    request = hostile(model, rng)
    if rng.random() < 0.5 or request.ByteSize() > SMALL:
        request = valid(model, rng.randrange(2**32))
    after = rng.choice((None, 0.0, 0.05))
    return Attempt("many streams", STREAM, (_bytes(request),), cancel_after_s=after, times=100)


def damaged(rng: random.Random) -> Attempt:
    """Bytes that once were a message: cut, with bits flipped, or never one at all."""
    data = _bytes(hostile(rng.choice(MODELS), rng))[:100_000]
    match rng.randrange(4):
        case 0:
            data = data[: rng.randrange(len(data) + 1)]
        case 1 if data:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        case 2:
            data = rng.randbytes(rng.choice((1, 10, 1000)))
        case _:
            place = rng.randrange(len(data) + 1)
            data = data[:place] + b"\xff\xff\xff\xff\x7f" + data[place:]
    return Attempt("damaged", rng.choice((UNARY, STREAM, SERVICE + "ModelConfig")), (data,))


def closed_api(rng: random.Random) -> Attempt:
    """An API that could change the server or read memory."""
    name = rng.choice(list(CLOSED))
    message = CLOSED[name]()
    _fill(message, rng)
    metadata = (("triton-grpc-protocol-closed", rng.choice(("to-all", "nobody", ""))),)
    return Attempt("closed API", SERVICE + name, (_bytes(message),), metadata=metadata)


def open_api(rng: random.Random) -> Attempt:
    """What the server says of itself, asked with any values; and methods that do not exist."""
    if rng.random() < 0.2:
        unknown = ("/", "/x", SERVICE, SERVICE + "x" * 1000, "/grpc.health.v1.Health/Check")
        return Attempt("unknown method", rng.choice(unknown), (rng.randbytes(8),))
    name = rng.choice(list(OPEN))
    message = OPEN[name]()
    _fill(message, rng)
    return Attempt("open API", SERVICE + name, (_bytes(message),), metadata=_metadata(rng))


def shared_stream(rng: random.Random) -> Attempt:
    """Several hostile requests on one stream, of one model or of several."""
    models = rng.choice(((wire.GENERATOR,), (wire.PRM,), (wire.GENERATOR, wire.PRM), MODELS))
    number = rng.choice((2, 8, 64))
    requests = (
        valid(rng.choice(models), rng.randrange(2**32))
        if rng.random() < 0.5
        else hostile(rng.choice(models), rng)
        for _ in range(number)
    )
    after = rng.choice((None, None, 0.0, 0.05))
    return Attempt(
        "shared stream", STREAM, tuple(_bytes(r) for r in requests), cancel_after_s=after
    )


KINDS: dict[Callable[[random.Random], Attempt], float] = {
    one_request: 40,
    one_stream: 30,
    cancelled: 10,
    damaged: 10,
    closed_api: 5,
    open_api: 3,
    empty_stream: 1,
    many_streams: 1,
}
"""Each kind with its share."""


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()


def _metadata(rng: random.Random) -> tuple[tuple[str, str], ...]:
    if rng.random() < 0.8:
        return ()
    name = rng.choice(("grpc-timeout-x", "triton_request_id", "grpc-encoding-x", "x", "x-" * 200))
    return ((name.strip("-"), rng.choice(("", "1", "x" * 4000))),)


def _fill(message: Any, rng: random.Random) -> None:
    """Give most fields of a message a value of their type."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.3:
            continue
        place = getattr(message, field.name)
        if field.name == "parameters":
            set_parameter(place, rng)
        elif field.message_type is not None:  # the settings of trace and log
            _fill(place[rng.choice(("trace_level", "trace_file", "log_file", "x"))], rng)
        elif isinstance(place, (str, bytes)):
            text = rng.choice((*TEXTS, *MODELS, "1", "/dev/shm/x"))
            setattr(message, field.name, text.encode() if isinstance(place, bytes) else text)
        elif isinstance(place, int):
            setattr(message, field.name, type(place)(rng.choice((0, 1, 2**31 - 1))))
        else:  # a list of texts
            place.extend(rng.choices(TEXTS, k=2))
