"""Quantiles of a stream in bounded memory, to a known relative error.

Masson, Rim and Lee, DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error
Guarantees (VLDB 2019): values are counted in bins whose limits grow by a constant factor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

ERROR = 0.01
"""Relative error of a quantile."""
_GROWTH = (1 + ERROR) / (1 - ERROR)
_LOG_GROWTH = math.log(_GROWTH)


@dataclass(slots=True)
class QuantileSketch:
    """Counts of values >= 0 in bins that grow by 2%; at most a few thousand of them."""

    count: int = 0
    total: float = 0.0
    _zeros: int = 0
    _bins: Counter[int] = field(default_factory=Counter)

    def add(self, value: float) -> None:
        """Take in a value; what is not above a nanounit counts as 0."""
        self.count += 1
        self.total += value
        if value <= 1e-9:
            self._zeros += 1
        else:
            self._bins[math.ceil(math.log(value) / _LOG_GROWTH)] += 1

    def merge(self, other: QuantileSketch) -> None:
        """Take in all values of another one."""
        self.count += other.count
        self.total += other.total
        self._zeros += other._zeros
        self._bins.update(other._bins)

    @property
    def mean(self) -> float | None:
        """The exact mean; None without values."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The smallest value that so many are not above, to 1%; None without values."""
        if not self.count:
            return None
        below, wanted = self._zeros, max(1, math.ceil(share * self.count))
        if below >= wanted:
            return 0.0
        for place in sorted(self._bins):
            below += self._bins[place]
            if below >= wanted:
                break
        return 2 * _GROWTH**place / (_GROWTH + 1)

    def histogram(self, most: int) -> Iterator[tuple[float, float, int]]:
        """(low, high, count) of at most so many bins, equally wide on a logarithmic axis.

        Zeros are in a bin of their own, from 0 to 0, which is not counted among `most`.
        """
        if self._zeros:
            yield 0.0, 0.0, self._zeros
        if not self._bins:
            return
        first, last = min(self._bins), max(self._bins)
        together = -(-(last - first + 1) // most)
        for start in range(first, last + 1, together):
            inside = sum(self._bins.get(place, 0) for place in range(start, start + together))
            yield _GROWTH ** (start - 1), _GROWTH ** (start + together - 1), inside
