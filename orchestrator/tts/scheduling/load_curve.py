"""What load costs an engine, learnt from finished requests. Pure: no clock, no IO.

A step of the engine is taken to take t0 + t1 * load, so the time per unit of work is linear in the
load: the share of the engine's limit that a load reaches, and the seconds that a request takes.
"""

from __future__ import annotations

from collections.abc import Sequence

SPREAD = 1.5
"""How many times the smallest load the largest must be, at least, to tell what load costs."""

_BUCKETS = 32  # one per power of two
_MEMORY = 64  # samples that a bucket's averages go back
_ENOUGH = 8  # samples until a bucket counts
_FORGET = 4096  # samples in all after which a bucket that saw none of them no longer counts


class LoadCurve:
    """An engine's time per unit of work over load, in constant memory.

    Loads are kept by powers of two, as moving averages, so that the curve follows an engine whose
    work changes; a load that no longer occurs is forgotten.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._buckets: list[_Bucket | None] = [None] * _BUCKETS

    def add(self, load: float, work: float, seconds: float) -> None:
        """Take in a finished request.

        `load` is what was in flight, itself included, on average while it ran; in requests or
        tokens. The first request of a burst is sent to an empty engine, yet shares it with all the
        others: the load when it was sent would make small loads look slow.
        """
        if load < 1 or work <= 0 or seconds <= 0:
            return
        self._seen += 1
        place = min(int(load).bit_length() - 1, _BUCKETS - 1)
        bucket = self._buckets[place]
        if bucket is None or self._seen - bucket.last > _FORGET:
            bucket = self._buckets[place] = _Bucket()
        bucket.add(load, work, seconds, self._seen)

    def share(self, load: float) -> float | None:
        """The throughput at this load as a share of the engine's limit, in [0, 1].

        If a unit of work takes t0 + t1 * load, it is t1 * load / (t0 + t1 * load). None until the
        observed loads differ enough.
        """
        buckets = self._counting()
        if not _differ(buckets):
            return None
        step_s, each_s = _line(buckets)
        return each_s * load / (step_s + each_s * load) if each_s else 0.0

    def seconds(self, load: float) -> float | None:
        """Seconds that a request takes at this load; at load 0, the fixed cost of its steps.

        Until the observed loads differ enough, it is their mean at any load, which is an upper
        bound at load 0. None until enough has been observed.
        """
        buckets = self._counting()
        if not buckets:
            return None
        weights = _weights(buckets)
        if not _differ(buckets):
            return _mean([bucket.seconds for bucket in buckets], weights)
        step_s, each_s = _line(buckets)
        return _mean([bucket.work for bucket in buckets], weights) * (step_s + each_s * load)

    def _counting(self) -> list[_Bucket]:
        """The buckets with enough samples that are not too old, by rising load."""
        return [
            bucket
            for bucket in self._buckets
            if bucket and bucket.samples >= _ENOUGH and self._seen - bucket.last <= _FORGET
        ]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    products = (value * weight for value, weight in zip(values, weights, strict=True))
    return sum(products) / sum(weights)


def _differ(buckets: Sequence[_Bucket]) -> bool:
    """Whether the loads tell what more load costs."""
    return bool(buckets) and buckets[-1].load >= SPREAD * buckets[0].load


def _weights(buckets: Sequence[_Bucket]) -> list[int]:
    return [min(bucket.samples, _MEMORY) for bucket in buckets]


def _line(buckets: Sequence[_Bucket]) -> tuple[float, float]:
    """Seconds per unit of work as t0 + t1 * load: both, neither negative, by least squares."""
    loads = [bucket.load for bucket in buckets]
    times = [bucket.seconds / bucket.work for bucket in buckets]
    weights = _weights(buckets)
    mean_load, mean_time = _mean(loads, weights), _mean(times, weights)
    spread = _mean([(each - mean_load) ** 2 for each in loads], weights)
    both = [(x - mean_load) * (y - mean_time) for x, y in zip(loads, times, strict=True)]
    each_s = max(0.0, _mean(both, weights) / spread)
    return max(0.0, mean_time - each_s * mean_load), each_s


class _Bucket:
    """Averages over about the last _MEMORY requests of similar load."""

    __slots__ = ("last", "load", "samples", "seconds", "work")

    def __init__(self) -> None:
        self.samples = 0
        self.last = 0
        self.load = self.work = self.seconds = 0.0

    def add(self, load: float, work: float, seconds: float, now: int) -> None:
        self.samples += 1
        self.last = now
        weight = 1 / min(self.samples, _MEMORY)
        self.load += weight * (load - self.load)
        self.work += weight * (work - self.work)
        self.seconds += weight * (seconds - self.seconds)
