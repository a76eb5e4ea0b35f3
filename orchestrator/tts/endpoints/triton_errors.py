"""What the errors of a Triton server mean: the one place where they become ours.

Engines of ours say it by a code in front of their sentence (`wire.Failure`). Errors from Triton,
gRPC or TensorRT-LLM have gRPC's status, and on a stream only a text; the texts after which a retry
may help are data (serving/contract/passing_failures.json).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import grpc

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.engines import wire
from tts.serving.contract import passing_failures


class EngineInUse(RequestRefused):
    """An engine holds requests, so it does not empty its prefix cache."""


async def all_reset(*engines: Awaitable[object]) -> bool:
    """Whether all engines emptied their caches, side by side; False if one holds requests.

    Raises EndpointError, when none is at it any more.
    """
    results = await asyncio.gather(*engines, return_exceptions=True)
    failed = [each for each in results if isinstance(each, BaseException)]
    for error in failed:
        if not isinstance(error, EngineInUse):
            raise error
    return not failed


class ErrorAnswer(Exception):
    """A request on a stream was answered by an error, of which there is only the text."""


BY_FAILURE: dict[wire.Failure, type[EndpointError]] = {
    wire.Failure.REFUSED: RequestRefused,
    wire.Failure.UNAVAILABLE: EndpointUnavailable,
    # what this client cancels it awaits no more: another one has stopped it
    wire.Failure.CANCELLED: EndpointUnavailable,
    wire.Failure.IN_USE: EngineInUse,
}
"""Errors by the code of an engine of ours, which counts for more than gRPC's."""

BY_STATUS: dict[grpc.StatusCode, type[EndpointError]] = {
    grpc.StatusCode.OK: EndpointUnavailable,  # of a stream that ended without an answer
    grpc.StatusCode.CANCELLED: EndpointUnavailable,
    grpc.StatusCode.UNAVAILABLE: EndpointUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: EndpointTimeout,
}
"""Errors by gRPC's status; any other one refuses a request, unless its text is one that passes."""


class Translation:
    """A context whose body talks to a server: what it raises leaves it as an EndpointError."""

    __slots__ = ("_address", "_model")

    def __init__(self, model: str, address: str) -> None:
        self._model, self._address = model, address

    def __enter__(self) -> None:
        """Nothing is needed."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        match error:
            case None:
                return
            case ErrorAnswer():
                raise error_of_text(self._model, str(error)) from None
            case grpc.aio.AioRpcError():
                raise self._error_of_status(error) from error

    def _error_of_status(self, error: grpc.aio.AioRpcError) -> EndpointError:
        """What the end of a call, or of a stream, means for the requests on it."""
        kind = BY_STATUS.get(error.code(), RequestRefused)
        details = error.details() or error.code().name
        if kind is EndpointTimeout:
            return EndpointTimeout(f"Model {self._model} at {self._address}: {details}")
        failure, _ = wire.decode_failure(details)
        if failure is None and kind is EndpointUnavailable:
            return EndpointUnavailable(f"The server at {self._address} is gone: {details}")
        return error_of_text(self._model, details)


def error_of_text(model: str, text: str) -> EndpointError:
    """What the text of an error means for the one request that it answers."""
    failure, sentence = wire.decode_failure(text)
    if failure is None:
        passes = any(each.text in text for each in passing_failures())
        failure = wire.Failure.UNAVAILABLE if passes else wire.Failure.REFUSED
    return error_of_failure(model, failure, sentence)


def error_of_failure(model: str, failure: wire.Failure, sentence: str) -> EndpointError:
    """The error of a request that an engine's failure left without an answer."""
    kind = BY_FAILURE[failure]
    if issubclass(kind, EndpointUnavailable):
        return kind(f"Model {model} cannot answer now: {sentence}")
    return kind(f"Model {model} refused a request: {sentence}")
