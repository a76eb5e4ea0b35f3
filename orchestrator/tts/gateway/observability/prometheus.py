"""Counters, gauges and histograms in Prometheus' text format, version 0.0.4.

For one thread. The series of a metric are bounded: when there are too many, those with new label
values are counted together, under the value `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 400
"""Of one metric."""
OTHER = "other"

Labels = tuple[str, ...]


class Counter:
    """Sums that only grow, one for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._sums: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, amount: float, *values: str) -> None:
        """Add to the series with these label values."""
        key = values if values in self._sums else _bounded(values, self._sums)
        self._sums[key] = self._sums.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        """Its samples."""
        for values, total in self._sums.items():
            yield f"{self.name}{_braces(self.labels, values)} {_number(total)}"


class Gauge:
    """What a function says when it is asked: a value for each combination of label values."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,
        read: Callable[[], Mapping[Labels, float]],
        labels: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._read = read

    def lines(self) -> Iterable[str]:
        """Its samples, read now."""
        for values, value in list(self._read().items())[:MOST_SERIES]:
            yield f"{self.name}{_braces(self.labels, values)} {_number(value)}"


class Histogram:
    """How often a value was at most each of some bounds, for each combination of label values."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._series: dict[Labels, list[float]] = {}
        """The counts between the bounds, above the last, and the sum of all values."""

    def observe(self, value: float, *values: str) -> None:
        """Count a value in the series with these label values."""
        series = self._series.get(values)
        if series is None:
            key = _bounded(values, self._series)
            series = self._series.setdefault(key, [0] * (len(self._bounds) + 2))
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def lines(self) -> Iterable[str]:
        """Its samples."""
        bounds = [*map(_number, self._bounds), "+Inf"]
        for values, series in self._series.items():
            counts = list(accumulate(series[:-1]))
            for bound, count in zip(bounds, counts, strict=True):
                braces = _braces((*self.labels, "le"), (*values, bound))
                yield f"{self.name}_bucket{braces} {_number(count)}"
            braces = _braces(self.labels, values)
            yield f"{self.name}_sum{braces} {_number(series[-1])}"
            yield f"{self.name}_count{braces} {_number(counts[-1])}"


Metric = Counter | Gauge | Histogram


def exposition(metrics: Iterable[Metric]) -> str:
    """All metrics, as Prometheus scrapes them."""
    lines = []
    for metric in metrics:
        help = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {metric.name} {help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.lines()
    return "\n".join(lines) + "\n"


def _bounded(values: Labels, series: Mapping[Labels, object]) -> Labels:
    if values in series or len(series) < MOST_SERIES:
        return values
    return (OTHER,) * len(values)


def _braces(labels: Labels, values: Labels) -> str:
    if not labels:
        return ""
    pairs = zip(labels, map(_escaped, values), strict=True)
    return "{" + ",".join(f'{label}="{value}"' for label, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
