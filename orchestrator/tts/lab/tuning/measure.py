"""Throughput at several loads, its saturation point with a confidence interval, and the budget.

A measurement is a closed loop that keeps its load in flight; measurements go in repeated rounds.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from asyncio import TaskGroup
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import TypeVar

from tts.build.deployment_edit import Field
from tts.build.spec import Deployment, Role

from .recorded_requests import EngineUnderLoad, LoadRequest, load_unit

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


SHARE = 0.95
"""The share of the best throughput that is reached at the saturation point."""
ROOM = 2.0
"""How many times the saturation point the largest measured load must be, at least."""
LEAST_REPEATS = 2
"""Samples that a load needs to count."""
RESAMPLES = 1000
"""Draws of the bootstrap."""


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Measurements at one load; medians over its repeats."""

    load: int
    tokens_per_s: float
    lowest: float
    highest: float
    """Tokens per second of the slowest and the fastest repeat."""
    requests_per_s: float
    latency_s: float
    """The mean time that a request takes."""
    repeats: int


@dataclass(frozen=True, slots=True)
class SaturationPoint:
    """The load above which throughput gains little, with a 95% interval.

    None stands for a load beyond what was measured.
    """

    load: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A budget for the deployment file, and why."""

    role: Role
    present: int
    value: int
    why: str
    field: Field
    """The budget in the deployment file."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The measurements of one engine, and what follows from them."""

    role: Role
    unit: str
    """What its load is counted in."""
    samples: tuple[LoadSample, ...]
    levels: tuple[LoadLevel, ...]
    saturation: SaturationPoint
    proposal: Proposal | None
    """None where fewer than two loads were measured often enough."""


def analyse(measured: Measured, spec: Deployment) -> EngineResult:
    """The levels of an engine's samples, its saturation point, and a budget."""
    samples = tuple(measured.samples)
    points = tuple(levels(samples))
    point = saturation_point(samples)
    proposal = propose(measured.role, point, measured.full_batch, spec) if len(points) > 1 else None
    unit = load_unit(measured.role, spec)
    return EngineResult(measured.role, unit, samples, points, point, proposal)


def levels(samples: Iterable[LoadSample]) -> list[LoadLevel]:
    """A level for each load, by rising load; loads with too few samples are left out."""
    return [
        LoadLevel(
            load,
            median(sample.tokens_per_s for sample in repeats),
            min(sample.tokens_per_s for sample in repeats),
            max(sample.tokens_per_s for sample in repeats),
            median(sample.requests_per_s for sample in repeats),
            median(sample.latency_s for sample in repeats),
            len(repeats),
        )
        for load, repeats in _by_load(samples).items()
    ]


def saturation_point(samples: Iterable[LoadSample]) -> SaturationPoint:
    """The saturation point of the medians, and how far it moves when the repeats are resampled.

    The interval is that of a bootstrap: RESAMPLES times each load's repeats are drawn anew, with
    replacement.
    """
    repeats = {
        load: [sample.tokens_per_s for sample in same] for load, same in _by_load(samples).items()
    }
    point = _point_of({load: median(rates) for load, rates in repeats.items()})
    rng = random.Random(0)
    resampled = sorted(
        _point_of({load: median(rng.choices(each, k=len(each))) for load, each in repeats.items()})
        for _ in range(RESAMPLES)
    )
    low, high = (resampled[round(place * (RESAMPLES - 1))] for place in (0.025, 0.975))
    return SaturationPoint(
        *(value if math.isfinite(value) else None for value in (point, low, high))
    )


def find_saturation_point(points: Sequence[tuple[float, float]]) -> float | None:
    """The saturation point of (load, throughput) points, all positive, in the order of their load.

    It is the smallest load that reaches SHARE of the best throughput. None if they do not show
    one: until a load ROOM times as large was measured, the effect of more load is unknown. Between
    two loads the time per unit of work is taken to be linear in 1/load, which is exact for an
    engine whose steps take t0 + t1 * load.

    Throughputs need to be right only up to a common factor. A curve whose smallest load reaches
    the share saturates there.
    """
    if not points:
        return None
    enough = SHARE * max(throughput for _, throughput in points)
    place = next(place for place, point in enumerate(points) if point[1] >= enough)
    load, throughput = points[place]
    if points[-1][0] < ROOM * load:
        return None
    if place == 0:
        return load
    load_before, throughput_before = points[place - 1]
    slow, fast = 1 / throughput_before, 1 / throughput
    part = (1 / enough - fast) / (slow - fast)
    return 1 / (1 / load + part * (1 / load_before - 1 / load))


def propose(role: Role, point: SaturationPoint, full_batch: float, spec: Deployment) -> Proposal:
    """The in-flight budget: the upper end of the saturation point's interval, within limits.

    Too small a budget costs throughput; too large a one only moves requests into the engine's own
    queue, where the scheduler can no longer order them. So it is the upper end, rounded up to two
    digits, but no more than the load that fills the engine's batch (`full_batch`), which is also
    taken where no upper end was seen. The verifier's budget must let its longest request through.
    """
    unit = load_unit(role, spec)
    field = "in_flight_tokens" if unit == "tokens" else "in_flight_requests"
    if unit == "requests":
        present, least, why_least = spec.generator.in_flight_requests, 1, ""
        most, why_most = spec.compiled_pair()[0].max_batch_size, "max_batch_size"
    elif unit == "critiques":
        present, least, why_least = spec.verifier.in_flight, spec.critiques, "critique.samples"
        most, why_most = int(full_batch), "what max_batch_size and kv_cache.tokens take"
    else:
        present, least = spec.verifier.in_flight, spec.verifier_model.max_seq_len
        most, why_most = _two_digits(full_batch), "max_batch_size requests"
        why_least = "max_seq_len"
    value = _two_digits(point.high) if point.high else most
    why = "the upper end of the saturation point's interval"
    if value >= most:
        value, why = most, why_most
    if value < least:
        value, why = least, f"{why_least}, which one request may take"
    return Proposal(role, present, value, why, (role, field))


def _by_load(samples: Iterable[LoadSample]) -> Mapping[int, Sequence[LoadSample]]:
    by_load: dict[int, list[LoadSample]] = defaultdict(list)
    for sample in samples:
        by_load[sample.load].append(sample)
    return {load: by_load[load] for load in sorted(by_load) if len(by_load[load]) >= LEAST_REPEATS}


def _point_of(rates: Mapping[int, float]) -> float:
    point = find_saturation_point(list(rates.items()))
    return math.inf if point is None else point


def _two_digits(value: float) -> int:
    """Rounded up to two significant digits."""
    step = int(10 ** max(0, math.floor(math.log10(value)) - 1))
    return math.ceil(value / step) * step
