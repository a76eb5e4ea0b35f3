"""Throughput at several loads: closed loops that keep each load in flight, in repeated rounds."""

from __future__ import annotations

import asyncio
import time
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from tts.build.spec import Role

from .recorded_requests import EngineUnderLoad, LoadRequest

T = TypeVar("T")

ROUNDS = 5
"""Rounds over all loads, after one that warms up and is discarded."""
LEAST_ROUNDS = 2
"""Rounds that are made however long they take."""
LEAST_REQUESTS = 12
"""Requests of a measurement, at least."""
_MEASURED_SHARE = 0.5  # of the time; the rest is ramps, drains and filling the prefix cache


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One measurement at one load."""

    load: int
    tokens_per_s: float
    requests_per_s: float
    latency_s: float
    """The mean time that a request takes."""


@dataclass
class Measured:
    """The measurements of one engine so far."""

    role: Role
    full_batch: float
    """The load that fills the engine's batch."""
    samples: list[LoadSample] = field(default_factory=list)


async def measure(
    engine: EngineUnderLoad,
    seconds: float,
    into: Measured,
    *,
    first: int,
    on_load: Callable[[int, int], None] = lambda load, round_: None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Measure every load in ROUNDS rounds, or as many as `seconds` allow, adding to `into`.

    A round 0 before them is discarded: it warms the engine up and shows how many requests fit in
    the time. At least LEAST_ROUNDS are made, however long they take. Rounds go up and down the
    loads in turn, so that a drift of the machine affects all loads alike. `first` is the number of
    the first measurement; numbers must differ from those of all earlier measurements on the same
    server. `on_load` is called with the load and the round as a measurement begins.
    """
    began = clock()
    window_s = _MEASURED_SHARE * seconds / (len(engine.loads) * (ROUNDS + 1))
    counts: dict[int, int] = {}
    number = first
    for round_ in range(ROUNDS + 1):
        round_began = clock()
        for load in engine.loads if round_ % 2 else engine.loads[::-1]:
            on_load(load, round_)
            parallel = load / engine.mean_cost
            count = counts.get(load) or max(LEAST_REQUESTS, round(3 * parallel))
            await measure_load(engine.warm_up(number, count), max(engine.loads), clock)
            sample = await measure_load(islice(engine.requests(number), count), load, clock)
            number += 1
            if round_ and sample.tokens_per_s:
                into.samples.append(sample)
            elif not round_:
                counts[load] = max(count, round(sample.requests_per_s * window_s + 2 * parallel))
        now = clock()
        if round_ >= LEAST_ROUNDS and now - began + (now - round_began) > seconds:
            return


async def measure_load(
    requests: Iterable[LoadRequest], load: int, clock: Callable[[], float]
) -> LoadSample:
    """Send all requests in a closed loop with `load` in flight, and measure while it is full.

    It is full from when as many requests have ended as were sent at first, until the last one is
    sent. A sample of zeros says that it never was: too few requests for this load.
    """
    send_times: list[float] = []
    ends: list[tuple[float, int, float]] = []  # when, tokens, latency
    at_first = 0

    async def send(request: LoadRequest) -> None:
        nonlocal at_first
        began = clock()
        send_times.append(began)
        tokens = await request.send()
        now = clock()
        at_first = at_first or len(send_times)
        ends.append((now, tokens, now - began))

    await send_all(requests, lambda request: request.cost, load, send)
    return _sample(load, ends, at_first, send_times[-1] if send_times else 0.0)


def _sample(
    load: int, ends: Sequence[tuple[float, int, float]], at_first: int, last_sent: float
) -> LoadSample:
    began = ends[at_first - 1][0] if at_first else 0.0
    timed = [end for end in ends[at_first:] if end[0] <= last_sent] or ends[at_first:]
    took = timed[-1][0] - began if timed else 0.0
    if took <= 0:  # the loop was never refilled
        return LoadSample(load, 0.0, 0.0, 0.0)
    return LoadSample(
        load,
        sum(tokens for _, tokens, _ in timed) / took,
        len(timed) / took,
        sum(latency for _, _, latency in timed) / len(timed),
    )


async def send_all(
    requests: Iterable[T],
    cost: Callable[[T], int],
    budget: int,
    send: Callable[[T], Awaitable[object]],
) -> None:
    """A closed loop: send all requests in this order, always as many as the budget allows.

    This is load without dependencies; a search's requests go through the scheduler. `cost` is what
    a request takes of the budget while it is in flight, in the budget's unit (requests or tokens);
    one that costs more than the whole budget goes alone. The first failure is raised, as part of an
    exception group, after the other requests were cancelled.
    """
    in_flight = 0
    room = asyncio.Event()

    async def send_one(request: T) -> None:
        nonlocal in_flight
        await send(request)
        in_flight -= cost(request)
        room.set()

    async with TaskGroup() as group:
        for request in requests:
            while in_flight and in_flight + cost(request) > budget:
                room.clear()
                await room.wait()
            in_flight += cost(request)
            group.create_task(send_one(request))
