"""Attempts by the thousand, and what must hold of the server meanwhile and afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from tts.engines import wire

from .attempts import STREAM, UNARY, Attempt, attempts, shared_streams
from .requests import valid
from .served import Served

BATCH = 250
"""Attempts between two looks at the server."""
AT_ONCE = 8
FIRST = 1000
"""Attempts after which its memory must not grow much any more."""
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


@dataclass
class Report:
    """What came of a campaign."""

    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """How often, by kind of attempt."""
    failures: list[str] = field(default_factory=list)
    """What must not be, a line for each."""
    known_crashes: int = 0
    """How often streams with several requests ended Triton, by its own fault."""
    stuck_streams: int = 0
    """How many of them it left without an end, by the same fault."""
    grown: int = 0
    """Bytes of memory that the server and its stubs have gained since the first thousand."""


@dataclass(frozen=True)
class Bounds:
    """What a campaign allows."""

    longest_s: float = 10.0
    """Until a call is answered."""
    most_growth: int = 256 << 20
    """Bytes of memory, after the first thousand attempts."""
    back_within_s: float = 90.0
    """Until both models answer again."""


def fuzz_requests(
    server: Served,
    number: int,
    seed: int,
    bounds: Bounds = Bounds(),
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Send `number` attempts and, one at a time, a hundredth as many streams shared by requests.

    The server may die of the latter alone, and only by Triton's known fault; then it must be back.
    """
    report = Report()
    asyncio.run(_fuzz(server, number, seed, bounds, say, report))
    return report


async def _fuzz(
    server: Served,
    number: int,
    seed: int,
    bounds: Bounds,
    say: Callable[[str], None],
    report: Report,
) -> None:
    drawn = islice(attempts(seed), number)
    before: dict[str, int] = {}
    done = 0
    while batch := list(islice(drawn, BATCH)):
        await _send(server, batch, bounds, report)
        await _require_alive(server, report, bounds, f"attempts {done} to {done + len(batch) - 1}")
        done += len(batch)
        now = server.resident()
        if done <= FIRST:
            before = now
        report.grown = max(report.grown, sum(now.values()) - sum(before.values()))
        sizes = ", ".join(f"{name} {size >> 20}" for name, size in sorted(now.items()))
        say(f"{done} attempts; MiB: {sizes}")
    if report.grown > bounds.most_growth:
        report.failures.append(f"memory grew by {report.grown >> 20} MiB")
    for place, attempt in enumerate(islice(shared_streams(seed), number // 100)):
        await _send(server, [attempt], bounds, report)
        await _require_alive(server, report, bounds, f"shared stream {place}", may_die=True)


async def _send(server: Served, batch: Sequence[Attempt], bounds: Bounds, report: Report) -> None:
    some = asyncio.Semaphore(AT_ONCE)
    async with connect(server.address()) as channel:

        async def send(attempt: Attempt) -> None:
            async with some:
                outcomes = await deliver(channel, attempt, bounds.longest_s)
            report.outcomes.update((attempt.kind, outcome) for outcome in outcomes)
            if Outcome.HUNG in outcomes:
                if len(attempt.messages) > 1:
                    report.stuck_streams += 1
                else:
                    report.failures.append(f"not answered in time: {_described(attempt)}")
            if attempt.closed and Outcome.ANSWERED in outcomes:
                report.failures.append(f"a closed API answered: {_described(attempt)}")

        await asyncio.gather(*map(send, batch))


async def _require_alive(
    server: Served, report: Report, bounds: Bounds, after: str, *, may_die: bool = False
) -> None:
    """Wait until both models answer, and count what has died meanwhile."""
    deadline = time.monotonic() + bounds.back_within_s
    while not await _both_answer(server, bounds):
        if time.monotonic() > deadline:
            report.failures.append(f"the models do not answer after {after}")
            break
        await asyncio.sleep(0.1)
    died = server.new_deaths()
    if may_die and server.crash_is_known() and not any("stub" in line for line in died):
        report.known_crashes += len(died)
    else:
        report.failures += [f"after {after}: {line}" for line in died]


async def _both_answer(server: Served, bounds: Bounds) -> bool:
    async with connect(server.address()) as channel:
        for method, model in ((STREAM, wire.GENERATOR), (UNARY, wire.PRM)):
            request = Attempt("valid", method, (valid(model).SerializeToString(),))
            if await deliver(channel, request, bounds.longest_s) != [Outcome.ANSWERED]:
                return False
    return True


def _described(attempt: Attempt) -> str:
    sizes = [len(message) for message in attempt.messages]
    return f"{attempt.kind}, {attempt.method}, messages of {sizes} bytes"


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
        return Outcome.REFUSED if closed else _outcome_of(error.code())
    except asyncio.InvalidStateError:  # the stream ended while it was written to
        return _outcome_of(await call.code())
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
    return outcome if code is grpc.StatusCode.OK else _outcome_of(code)


async def _give_up(call: Any, attempt: Attempt) -> Outcome:
    writing = asyncio.ensure_future(_write(call, attempt) if attempt.streams else call)
    await asyncio.wait([writing], timeout=attempt.cancel_after_s)
    call.cancel()
    writing.cancel()  # it may wait for ever on a call that is cancelled
    await asyncio.wait([writing])
    if not writing.cancelled():
        writing.exception()  # it says nothing that the status does not
    return _outcome_of(await call.code())


def _outcome_of(code: grpc.StatusCode) -> Outcome:
    match code:
        case grpc.StatusCode.OK:
            return Outcome.ANSWERED
        case grpc.StatusCode.CANCELLED:
            return Outcome.CANCELLED
        case grpc.StatusCode.UNAVAILABLE:
            return Outcome.LOST
        case _:
            return Outcome.REFUSED
