"""One attempt against a server, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from .attempts import Attempt

OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Outcome(StrEnum):
    """What came of an attempt."""

    ANSWERED = "answered"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The connection ended."""
    HUNG = "hung"
    """Neither an answer nor an error in time."""


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel on which messages are bytes."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        yield channel


async def deliver(channel: grpc.aio.Channel, attempt: Attempt, longest_s: float) -> list[Outcome]:
    """Carry an attempt out; one outcome for each of its calls."""
    calls = (_one(channel, attempt, longest_s) for _ in range(attempt.times))
    return list(await asyncio.gather(*calls))


async def _one(channel: grpc.aio.Channel, attempt: Attempt, longest_s: float) -> Outcome:
    call = _start(channel, attempt)
    try:
        async with asyncio.timeout(longest_s):
            if attempt.cancel_after_s is not None:
                return await _give_up(call, attempt)
            if attempt.streams:
                return await _read_all(call, attempt)
            await call
            return Outcome.ANSWERED
    except TimeoutError:
        return Outcome.HUNG
    except grpc.aio.AioRpcError as error:
        closed = "restricted" in (error.details() or "")  # which Triton calls UNAVAILABLE
        return Outcome.REFUSED if closed else _of_status(error.code())
    except asyncio.InvalidStateError:  # the stream ended while it was written to
        return _of_status(await call.code())
    finally:
        call.cancel()


def _start(channel: grpc.aio.Channel, attempt: Attempt) -> Any:
    if attempt.streams:
        return channel.stream_stream(attempt.method)(metadata=attempt.metadata)
    (message,) = attempt.messages
    return channel.unary_unary(attempt.method)(message, metadata=attempt.metadata)


async def _write(call: Any, attempt: Attempt) -> None:
    for message in attempt.messages:
        await call.write(message)
    if attempt.half_close:
        await call.done_writing()


async def _read_all(call: Any, attempt: Attempt) -> Outcome:
    await _write(call, attempt)
    outcome = Outcome.ANSWERED
    while (message := await call.read()) is not grpc.aio.EOF:
        if service_pb2.ModelStreamInferResponse.FromString(message).error_message:
            outcome = Outcome.REFUSED
    code = await call.code()
    return outcome if code is grpc.StatusCode.OK else _of_status(code)


async def _give_up(call: Any, attempt: Attempt) -> Outcome:
    writing = asyncio.ensure_future(_write(call, attempt) if attempt.streams else call)
    await asyncio.wait([writing], timeout=attempt.cancel_after_s)
    call.cancel()
    writing.cancel()  # it may wait for ever on a call that is cancelled
    await asyncio.wait([writing])
    if not writing.cancelled():
        writing.exception()  # it says nothing that the status does not
    return _of_status(await call.code())


def _of_status(code: grpc.StatusCode) -> Outcome:
    match code:
        case grpc.StatusCode.OK:
            return Outcome.ANSWERED
        case grpc.StatusCode.CANCELLED:
            return Outcome.CANCELLED
        case grpc.StatusCode.UNAVAILABLE:
            return Outcome.LOST
        case _:
            return Outcome.REFUSED
