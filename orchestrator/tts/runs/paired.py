"""Two runs on the same problems: differences problem by problem, with 95% intervals.

Easy problems are easy for both and cancel, so paired differences are known far more precisely than
those of two independent averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .intervals import Z_95


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean of paired differences (one minus other)."""

    mean: float
    error: float
    """Standard error of the mean: sqrt(s² / count), s² the sample variance of the differences."""
    count: int
    """Pairs."""

    @property
    def interval_95(self) -> tuple[float, float]:
        """Mean ± 1.96 standard errors."""
        return self.mean - Z_95 * self.error, self.mean + Z_95 * self.error

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out 0."""
        low, high = self.interval_95
        return low > 0 or high < 0


def paired(differences: Sequence[float]) -> Difference | None:
    """The mean of paired differences; None without any."""
    count = len(differences)
    if not count:
        return None
    mean = math.fsum(differences) / count
    variance = math.fsum((value - mean) ** 2 for value in differences) / max(count - 1, 1)
    return Difference(mean, math.sqrt(variance / count), count)


def paired_difference(
    one: Mapping[str, bool | None], other: Mapping[str, bool | None]
) -> tuple[float, float, int]:
    """Mean of one minus other over the problems both have, its standard error, and their number.

    Both count as 1 where right, else 0.
    """
    common = sorted(one.keys() & other.keys())
    found = paired([bool(one[name]) - bool(other[name]) for name in common])
    return (found.mean, found.error, found.count) if found else (0.0, 0.0, 0)


def mcnemar(only_one: int, only_other: int) -> float:
    """The exact two-sided p-value of McNemar's test (1947), a sign test of the disagreements.

    Given are the problems that only the one and only the other has right; those on which both agree
    say nothing. 1.0 without any disagreement.
    """
    count = only_one + only_other
    ways, tail = 1, 0  # to choose k of count, and the sum of these over k
    for k in range(min(only_one, only_other) + 1):
        tail += ways
        ways = ways * (count - k) // (k + 1)
    return min(1.0, 2 * tail / (1 << count))


def share_difference_95(only_one: int, only_other: int, count: int) -> tuple[float, float]:
    """The 95% interval of the share that one has right minus that of the other, on `count` pairs.

    Given are the problems that only the one and only the other has right. The interval is that of
    Agresti and Min, Simple improved confidence intervals for comparing matched proportions (2005):
    the normal one of the paired differences with half a problem more of each of the four outcomes,
    so that a few problems without a disagreement do not pass for certainty.
    """
    total = count + 2
    mean = (only_one - only_other) / total
    variance = max(0.0, (only_one + only_other + 1) / total - mean**2)
    half = Z_95 * math.sqrt(variance / total)
    return max(-1.0, mean - half), min(1.0, mean + half)
