"""What the errors of a Triton server mean: the one place where they become ours.

Engines of ours say it by a code in front of their sentence (`wire.Failure`). What comes from
Triton, gRPC or TensorRT-LLM has gRPC's status, and on a stream only words; those after which asking
again may help are data (serving/contract/passing_failures.json).
"""

from __future__ import annotations

import grpc

from tts.build.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.engines import wire
from tts.serving.contract.facts import passing_failures


class EngineInUse(RequestRefused):
    """An engine holds requests, so it does not empty its prefix cache."""


_BY_FAILURE: dict[wire.Failure, type[EndpointError]] = {
    wire.Failure.REFUSED: RequestRefused,
    wire.Failure.UNAVAILABLE: EndpointUnavailable,
    # what this client cancels it awaits no more: another one has stopped it
    wire.Failure.CANCELLED: EndpointUnavailable,
    wire.Failure.IN_USE: EngineInUse,
}
_GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.OK}


def error_of_status(
    model: str, address: str, error: grpc.aio.AioRpcError, timeout_s: float
) -> EndpointError:
    """What the end of a call, or of a stream, means for the requests on it."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return timed_out(model, address, timeout_s)
    details = error.details() or error.code().name
    failure, _ = wire.decode_failure(details)
    if failure is None and error.code() in _GONE:
        return EndpointUnavailable(f"The server at {address} is gone: {details}")
    return error_of_text(model, details)


def error_of_text(model: str, text: str) -> EndpointError:
    """What the text of an error means for the one request that it answers."""
    failure, sentence = wire.decode_failure(text)
    if failure is None:
        passes = any(known.text in text for known in passing_failures())
        failure = wire.Failure.UNAVAILABLE if passes else wire.Failure.REFUSED
    kind = _BY_FAILURE[failure]
    if issubclass(kind, EndpointUnavailable):
        return kind(f"Model {model} cannot answer now: {sentence}")
    return kind(f"Model {model} refused a request: {sentence}")


def timed_out(model: str, address: str, timeout_s: float) -> EndpointTimeout:
    """What it means that nothing has come in time."""
    return EndpointTimeout(f"Model {model} at {address} did not answer within {timeout_s:.0f} s.")
