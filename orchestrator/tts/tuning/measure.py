"""Throughput at several loads: a closed loop that keeps so much in flight, over and over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tts.build.spec import Role

from .workload import Job, Loadable

ROUNDS = 5  # that count
LEAST_ROUNDS = 2
MEASURED_SHARE = 0.5  # of the time; the rest is ramps, drains and filling the caches
LEAST_REQUESTS = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement at one load."""

    load: int
    tokens_per_s: float
    requests_per_s: float
    latency_s: float
    """Of a request, on average."""


@dataclass
class Measured:
    """What has been measured of one engine so far."""

    role: Role
    holds: float
    """The load that fills its batch."""
    samples: list[Sample] = field(default_factory=list)


async def measure(
    engine: Loadable,
    seconds: float,
    into: Measured,
    *,
    first: int,
    on_load: Callable[[int, int], None] = lambda load, round_: None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Measure every load in ROUNDS rounds, or as many as `seconds` allow, adding to `into`.

    A round before them is discarded: it warms the engine up and shows how many requests fit in the
    time. At least LEAST_ROUNDS are made, however long they take. Rounds go up and down the loads in
    turn, so that a drift of the machine hits all alike. `first` numbers the measurements, which
    must differ from all earlier ones on the same server.
    """
    began = clock()
    window_s = MEASURED_SHARE * seconds / (len(engine.loads) * (ROUNDS + 1))
    counts: dict[int, int] = {}
    for round_ in range(ROUNDS + 1):
        round_began = clock()
        for load in engine.loads if round_ % 2 else engine.loads[::-1]:
            on_load(load, round_)
            parallel = load / engine.mean_cost
            count = counts.get(load) or max(LEAST_REQUESTS, round(3 * parallel))
            await closed_loop(engine.warm_up(first, count), max(engine.loads), clock)
            sample = await closed_loop(islice(engine.jobs(first), count), load, clock)
            first += 1
            if round_ and sample.tokens_per_s:
                into.samples.append(sample)
            elif not round_:
                counts[load] = max(count, round(sample.requests_per_s * window_s + 2 * parallel))
        now = clock()
        if round_ >= LEAST_ROUNDS and now - began + (now - round_began) > seconds:
            return


async def closed_loop(
    jobs: Iterator[Job] | Sequence[Job], load: int, clock: Callable[[], float]
) -> Sample:
    """Send all jobs, always as many as fit into `load`; a job larger than that goes alone.

    Measured is the time in which the loop is full: from when as many have ended as were sent at
    first, to when the last one is sent.
    """
    waiting = iter(jobs)
    following = next(waiting, None)
    used = sent = 0
    ends: list[tuple[float, int, float]] = []  # when, tokens, latency
    last_sent = 0.0

    async def run(job: Job) -> None:
        nonlocal used
        began = clock()
        tokens = await job.send()
        now = clock()
        ends.append((now, tokens, now - began))
        used -= job.cost
        pump()

    def pump() -> None:
        nonlocal following, used, sent, last_sent
        while following and (not used or used + following.cost <= load):
            used += following.cost
            sent += 1
            last_sent = clock()
            group.create_task(run(following))
            following = next(waiting, None)

    async with asyncio.TaskGroup() as group:
        pump()
        at_first = sent
    return _sample(load, ends, at_first, last_sent)


def _sample(
    load: int, ends: Sequence[tuple[float, int, float]], at_first: int, last_sent: float
) -> Sample:
    began = ends[at_first - 1][0] if at_first else 0.0
    counted = [end for end in ends[at_first:] if end[0] <= last_sent] or ends[at_first:]
    took = counted[-1][0] - began if counted else 0.0
    if took <= 0:  # too few jobs for this load: the loop was never refilled
        return Sample(load, 0.0, 0.0, 0.0)
    return Sample(
        load,
        sum(tokens for _, tokens, _ in counted) / took,
        len(counted) / took,
        sum(latency for _, _, latency in counted) / len(counted),
    )
