"""Requests to decoupled models that share a gRPC stream; answers find theirs by request id.

Opening a stream costs both sides more than a request on it. Cancelling a shared stream would cancel
everything on it, so a request is cancelled as TensorRT-LLM has it: by a second one with the same id
and the tensor `stop`. No IO but the call's.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from tts.engines import wire

REQUESTS_PER_STREAM = 64
"""Then another is opened: what spreads streams over several servers can still spread the load."""


class SharedStream:
    """One ModelStreamInfer call. Each request gets exactly one answer."""

    def __init__(self, call: Any) -> None:
        """`call` is a new one of grpc.aio; it is ended here."""
        self._call = call
        self._name = secrets.token_hex(6)  # another client's ids must not stop our requests
        self._numbers = itertools.count(1)
        self._left = REQUESTS_PER_STREAM
        self._broken = False
        self._outbox: asyncio.Queue[Any] = asyncio.Queue()
        self._awaited: dict[str, asyncio.Future[Any]] = {}
        self._writer = asyncio.create_task(self._write())
        self._reader = asyncio.create_task(self._read())

    @property
    def open(self) -> bool:
        """Whether it takes another request."""
        return self._left > 0 and not self._broken

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return self._reader.done() and self._writer.done()

    async def infer(self, request: Any) -> Any:
        """Send a request, whose id is set here, and wait for its ModelStreamInferResponse.

        Cancelling the wait stops the request on the engine. Raises AioRpcError if the stream ends.
        """
        self._left -= 1
        request.id = number = f"{self._name}-{next(self._numbers)}"
        answer = self._awaited[number] = asyncio.get_running_loop().create_future()
        self._outbox.put_nowait(request)
        try:
            return await answer
        except asyncio.CancelledError:
            self._outbox.put_nowait(_stop(request.model_name, number))
            raise
        finally:
            del self._awaited[number]
            if not (self._left or self._awaited):
                self._outbox.put_nowait(None)

    async def wait_closed(self) -> None:
        """Wait until nothing of it is left; its channel is closed, or every answer has come."""
        await asyncio.wait({self._reader, self._writer})

    async def _write(self) -> None:
        try:
            while (message := await self._outbox.get()) is not None:
                await self._call.write(message)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended; the reader says why

    async def _read(self) -> None:
        failure: grpc.aio.AioRpcError | None = None
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                answer = self._awaited.get(message.infer_response.id)  # none if it was cancelled
                if answer is not None and not answer.done():
                    answer.set_result(message)
            failure = await _status(self._call)
        except grpc.aio.AioRpcError as error:
            failure = error
        finally:
            self._broken = True
            self._writer.cancel()
            for answer in self._awaited.values():
                if answer.done():
                    continue
                if failure is None:  # the channel was closed here
                    answer.cancel()
                else:
                    answer.set_exception(failure)


def _stop(model: str, number: str) -> Any:
    """What stops the request of this id. The lengths mean nothing; the model requires them."""
    message = service_pb2.ModelInferRequest(model_name=model, id=number)
    for name, value in (("input_lengths", 1), ("request_output_len", 1), ("stop", True)):
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    return message


async def _status(call: Any) -> grpc.aio.AioRpcError:
    """The status of a stream that has ended, as gRPC would raise it."""
    return grpc.aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details() or "the stream ended without an answer",
    )
