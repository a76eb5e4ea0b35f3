"""The saturation point that samples show, its confidence interval, and the budget. Pure."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tts.build.deployment_edit import Field
from tts.build.spec import Deployment, Role

from .measure import LoadSample, Measured
from .recorded_requests import load_unit

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
        _point_of({load: _median_of_drawn(rng, rates) for load, rates in repeats.items()})
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


def _median_of_drawn(rng: random.Random, rates: Sequence[float]) -> float:
    return median(rng.choices(rates, k=len(rates)))


def _two_digits(value: float) -> int:
    """Rounded up to two significant digits."""
    step = int(10 ** max(0, math.floor(math.log10(value)) - 1))
    return math.ceil(value / step) * step
