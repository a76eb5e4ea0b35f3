"""Requests to decoupled models that share a gRPC stream; answers find theirs by request id.

Opening a stream costs both sides more than a request on it. Cancelling a shared stream would cancel
everything on it, so a request is cancelled as TensorRT-LLM has it: by a second one with the same id
and the tensor `stop`. No IO but the call's.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sized
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from tts.engines import wire

REQUESTS_PER_STREAM = 64
"""Then another is opened: what spreads streams over several servers can still spread the load."""


Encode = Callable[[str], bytes]
"""A ModelInferRequest's bytes with the id that is passed to it."""


class StreamCall:
    """One ModelStreamInfer call that requests share. A subclass reads the answers, in `_read`."""

    def __init__(self, call: Any) -> None:
        """`call` is a new one of grpc.aio; it is ended here."""
        self._call = call
        self._name = secrets.token_hex(6)  # another client's ids must not stop our requests
        self._numbers = itertools.count(1)
        self._left = REQUESTS_PER_STREAM
        self._broken = False
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
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

    async def wait_closed(self) -> None:
        """Wait until nothing of it is left; its channel is closed, or every answer has come."""
        await asyncio.wait({self._reader, self._writer})

    def _send(self, encode: Encode) -> str:
        """Send one more request; its id."""
        number = f"{self._name}-{next(self._numbers)}"
        self._outbox.put_nowait(encode(number))
        self._left -= 1
        return number

    def _send_stop(self, model: str, number: str) -> None:
        """Stop a request on the engine: cancelling the call would cancel all that share it."""
        self._outbox.put_nowait(stop_request(model, number))

    def _end_if_used_up(self, unanswered: Sized) -> None:
        if not (self._left or unanswered):
            self._outbox.put_nowait(None)

    async def _write(self) -> None:
        try:
            while (message := await self._outbox.get()) is not None:
                await self._call.write(message)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended; the reader says why

    async def _read(self) -> None:
        raise NotImplementedError


class SharedStream(StreamCall):
    """One ModelStreamInfer call. Each request gets exactly one answer."""

    def __init__(self, call: Any) -> None:
        """`call` is a new one of grpc.aio; it is ended here."""
        super().__init__(call)
        self._awaited: dict[str, asyncio.Future[Any]] = {}

    async def infer(self, model: str, encode: Encode, timeout_s: float) -> Any:
        """Send a request, and wait for its ModelStreamInferResponse.

        A request that is not answered in time, and one whose wait is cancelled, is stopped on the
        engine. Raises TimeoutError, and AioRpcError if the stream ends.
        """
        number = self._send(encode)
        loop = asyncio.get_running_loop()
        answer = self._awaited[number] = loop.create_future()
        alarm = loop.call_later(timeout_s, _time_out, answer)
        try:
            return await answer
        except (asyncio.CancelledError, TimeoutError):
            self._send_stop(model, number)
            raise
        finally:
            alarm.cancel()
            del self._awaited[number]
            self._end_if_used_up(self._awaited)

    async def _read(self) -> None:
        failure: grpc.aio.AioRpcError | None = None
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                answer = self._awaited.get(message.infer_response.id)  # none if it was cancelled
                if answer is not None and not answer.done():
                    answer.set_result(message)
            failure = await status_of(self._call)
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


def _time_out(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def stop_request(model: str, number: str) -> bytes:
    """What stops the request of this id. The lengths mean nothing; the model requires them."""
    message = service_pb2.ModelInferRequest(model_name=model, id=number)
    for name, value in (("input_lengths", 1), ("request_output_len", 1), ("stop", True)):
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    data: bytes = message.SerializeToString()
    return data


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    """The status of a stream that has ended, as gRPC would raise it."""
    return grpc.aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details() or "the stream ended without an answer",
    )
