"""From samples to a knee with its confidence, and from there to a policy. Pure."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tts.build.deployment_edit import Field
from tts.build.spec import Deployment, Role
from tts.scheduling.load_curve import find_saturation_point

from .measure import Sample

SHARE = 0.95
"""Of the best throughput, reached at the knee."""
LEAST_REPEATS = 2
RESAMPLES = 1000
UNITS: dict[Role, str] = {"generator": "requests", "verifier": "tokens"}
FIELDS: dict[Role, Field] = {
    "generator": ("generator", "in_flight_requests"),
    "verifier": ("verifier", "in_flight_tokens"),
}


@dataclass(frozen=True, slots=True)
class Level:
    """What was measured at one load; medians over its repeats."""

    load: int
    tokens_per_s: float
    lowest: float
    highest: float
    """Tokens per second of the slowest and the fastest repeat."""
    requests_per_s: float
    latency_s: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Knee:
    """Where throughput stops growing, with a 95% interval; None: beyond what was measured."""

    load: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A value for the deployment file, and why."""

    role: Role
    present: int
    value: int
    why: str


def levels(samples: Iterable[Sample]) -> list[Level]:
    """By rising load; a load that was measured too seldom is left out."""
    return [
        Level(
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


def knee(samples: Iterable[Sample], seed: int = 0) -> Knee:
    """The knee of the medians, and how far it moves when the repeats are drawn anew (bootstrap)."""
    repeats = {
        load: [sample.tokens_per_s for sample in found] for load, found in _by_load(samples).items()
    }
    found = _knee_of({load: median(rates) for load, rates in repeats.items()})
    rng = random.Random(seed)
    drawn = sorted(
        _knee_of({load: _median_of_drawn(rng, rates) for load, rates in repeats.items()})
        for _ in range(RESAMPLES)
    )
    low, high = (drawn[round(place * (RESAMPLES - 1))] for place in (0.025, 0.975))
    return Knee(*(value if math.isfinite(value) else None for value in (found, low, high)))


def propose(role: Role, found: Knee, holds: float, spec: Deployment) -> Proposal:
    """The in-flight budget: the upper end of the knee's interval, within what makes sense.

    Too small a budget costs throughput, too large a one only puts requests into the engine's own
    queue, where the scheduler can no longer order them: so the upper end, to two digits, but no
    more than the load that fills the engine's batch (`holds`), which stands in for an upper end
    that was not seen too. The verifier's budget must let its longest request through.
    """
    if role == "generator":
        present, least = spec.generator.in_flight_requests, 1
        most = spec.generator.max_batch_size
    else:
        present, least = spec.verifier.in_flight_tokens, spec.verifier.max_seq_len
        most = _two_digits(holds)
    value = _two_digits(found.high) if found.high else most
    if value < most:
        why = "the upper end of the knee's interval"
    else:
        value, why = most, "max_batch_size" + " requests" * (role == "verifier")
    if value < least:
        value, why = least, "max_seq_len, which one request may take"
    return Proposal(role, present, value, why)


def _by_load(samples: Iterable[Sample]) -> Mapping[int, Sequence[Sample]]:
    grouped: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.load].append(sample)
    return {load: grouped[load] for load in sorted(grouped) if len(grouped[load]) >= LEAST_REPEATS}


def _knee_of(rates: Mapping[int, float]) -> float:
    found = find_saturation_point(list(rates.items()), SHARE)
    return math.inf if found is None else found


def _median_of_drawn(rng: random.Random, rates: Sequence[float]) -> float:
    return median(rng.choices(rates, k=len(rates)))


def _two_digits(value: float) -> int:
    """Rounded up."""
    step = int(10 ** max(0, math.floor(math.log10(value)) - 1))
    return math.ceil(value / step) * step
