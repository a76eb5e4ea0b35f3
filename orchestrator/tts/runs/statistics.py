"""The statistics of runs: quantiles, shares with intervals, paired differences, pass@k, the front.

Two runs on the same problems are compared problem by problem: easy problems are easy for both and
cancel, so that paired differences are known far more precisely than those of two averages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so many are not above; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def rounded(value: float | None, digits: int) -> float | None:
    """`round` that lets None through."""
    return None if value is None else round(value, digits)


def equal_bins(values: Sequence[float], bins: int) -> list[tuple[float, float, int]]:
    """(low, high, count) of equal bins from the least to the greatest value; none without values.

    Where all values are equal there is one bin, of no width.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [(low, high, len(values))]
    width = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / width), bins - 1)] += 1
    return [
        (low + place * width, low + (place + 1) * width, count)
        for place, count in enumerate(counts)
    ]


def logarithmic_histogram(values: Sequence[float], most: int) -> list[tuple[float, float, int]]:
    """(low, high, count) of at most so many bins, equally wide on a logarithmic axis.

    Values that are not above 0 have no place on it and are left out.
    """
    parts = equal_bins([math.log(value) for value in values if value > 0], most)
    return [(math.exp(low), math.exp(high), count) for low, high, count in parts]


Z_95 = 1.96
SIGNIFICANT = 0.05
"""A difference is called significant where its p-value, corrected, is below this."""


def joint_z(comparisons: int) -> float:
    """The width, in standard errors, of 95% intervals if so many of them are to hold together.

    Bonferroni: each leaves out 5% over their number. 1.96 for one.
    """
    return NormalDist().inv_cdf(1 - 0.025 / comparisons)


def joint_t(degrees: int, comparisons: int) -> float:
    """The width of joint intervals in standard errors, by Student's t with `degrees` of freedom."""
    low, high = 0.0, math.pi / 2  # the angle whose tangent is t / sqrt(degrees)
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (
            (angle, high) if _within(angle, degrees) < 1 - 0.05 / comparisons else (low, angle)
        )
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """How likely |t| is below sqrt(degrees) tan(angle).

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    odd = degrees % 2
    term, total = math.cos(angle) ** odd, 0.0
    for place in range(1 + odd, degrees, 2):
        total += term
        term *= place / (place + 1) * math.cos(angle) ** 2
    odd_part = math.sin(angle) * total
    return 2 / math.pi * (angle + odd_part) if odd else odd_part


def wilson(share: float, count: float, z: float = Z_95) -> tuple[float, float]:
    """The Wilson interval of a share of `count`, which is sane at 0 and 1 too; 95% by default.

    For an average of values within [0, 1] that are not all 0 or 1 it is too wide, never too
    narrow: no such values vary more than zeros and ones of the same average.
    """
    shrink = 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / shrink
    spread = share * (1 - share) / count + (z / (2 * count)) ** 2
    half = z / shrink * math.sqrt(spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def interval(low: float, high: float, form: str = ".1f") -> str:
    """`[77.1, 87.9]`: how intervals are printed everywhere."""
    return f"[{low:{form}}, {high:{form}}]"


def share_with_interval(share: float, count: int) -> str:
    """`82.5% [77.1, 87.0]`: a share of `count` with its Wilson 95% interval."""
    low, high = wilson(share, count)
    return f"{share:.1%} {interval(100 * low, 100 * high)}"


@dataclass(frozen=True, slots=True)
class PairedDifference:
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
    def p_value(self) -> float:
        """The two-sided p-value of no difference, by the normal distribution."""
        if not self.error:
            return float(not self.mean)
        return 2 * NormalDist().cdf(-abs(self.mean) / self.error)


def paired(differences: Sequence[float]) -> PairedDifference | None:
    """The mean of paired differences; None without any."""
    count = len(differences)
    if not count:
        return None
    mean = math.fsum(differences) / count
    variance = math.fsum((value - mean) ** 2 for value in differences) / max(count - 1, 1)
    return PairedDifference(mean, math.sqrt(variance / count), count)


def ratio_of_means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The 95% interval of the mean of the others over that of the ones, of costs of (one, other).

    It is that of the logarithm of the ratio, by the delta method for paired means, so it never
    reaches below 0. None where the ones are 0.
    """
    one, other = (math.fsum(costs) / len(pairs) for costs in zip(*pairs, strict=True))
    if not one:
        return None
    if not other:
        return 0.0, 0.0
    change = paired([theirs / other - ours / one for ours, theirs in pairs])
    half = math.exp(Z_95 * change.error) if change else 1.0
    return other / one / half, other / one * half


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


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for how many comparisons there are (Holm 1979).

    Where nothing differs, any of them is below 0.05 in at most 5% of cases.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = least
    return corrected


def share_difference(
    only_one: int, only_other: int, count: int, z: float = Z_95
) -> tuple[float, float]:
    """An interval of the share that one has right minus that of the other, on `count` pairs.

    Given are the problems that only the one and only the other has right; `z` is that of 95% by
    default. The interval is that of Agresti and Min, Simple improved confidence intervals for
    comparing matched proportions (2005): the normal one of the paired differences with half a
    problem more of each of the four outcomes, so that a few problems without a disagreement do not
    pass for certainty.
    """
    total = count + 2
    mean = (only_one - only_other) / total
    variance = max(0.0, (only_one + only_other + 1) / total - mean**2)
    half = z * math.sqrt(variance / total)
    return max(-1.0, mean - half), min(1.0, mean + half)


def pass_at_k(n: int, right: int, k: int) -> float:
    """How likely one of k completions is right, from n of which `right` are: over all draws of k.

    1 - C(n - right, k) / C(n, k), the estimator of Chen et al., Evaluating Large Language Models
    Trained on Code (2021), section 2.1. It is unbiased where the n are independent and alike:
    chains of a majority vote and best-of-n, or subtrees of DVTS.

    Raises ValueError unless 0 <= right <= n and 1 <= k <= n.
    """
    if not (0 <= right <= n and 1 <= k <= n):
        raise ValueError(f"no {k} of {n} can be drawn with {right} right ones")
    missed = 1.0
    for place in range(k):  # one after the other: no huge binomials
        missed *= max(0, n - right - place) / (n - place)
    return 1.0 - missed


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the (cost, value) pairs that no other pair dominates, by rising cost.

    A pair dominates another if it costs no more and is worth no less, and one of the two is better.
    Among equal pairs the first one is taken, so both costs and values rise along the front.
    """
    front: list[int] = []
    order = sorted(range(len(points)), key=lambda place: (points[place][0], -points[place][1]))
    for place in order:
        if not front or points[place][1] > points[front[-1]][1]:
            front.append(place)
    return front


def best_within(points: Sequence[tuple[float, float]], budget: float) -> int | None:
    """The place of the most valuable pair that costs no more than `budget`; the cheapest of those.

    This is how accuracies are read at an equal cost: the front's step below the budget, never a
    line drawn between two runs. None if every pair costs more.
    """
    affordable = [place for place in pareto_front(points) if points[place][0] <= budget]
    return affordable[-1] if affordable else None


class Gain(NamedTuple):
    """A difference in accuracy with its 95% interval, on the same problems."""

    mean: float
    low: float
    high: float
    p_value: float
    """Probability of so large a difference by chance: McNemar's exact test, or by the paired means
    of several seeds."""

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def gain_of(ours: Mapping[str, float], theirs: Mapping[str, float], z: float = Z_95) -> Gain | None:
    """How much more often we are right, over the problems of both; None without any.

    Where each answer is right or wrong, the interval is that of paired shares. It is `z` standard
    errors wide to each side.
    """
    differences = [right - theirs[name] for name, right in ours.items() if name in theirs]
    change = paired(differences)
    if change is None:
        return None
    if all(each in (-1, 0, 1) for each in differences):
        ours_only, theirs_only = differences.count(1), differences.count(-1)
        low, high = share_difference(ours_only, theirs_only, len(differences), z)
        return Gain(change.mean, low, high, mcnemar(ours_only, theirs_only))
    half = z * change.error
    return Gain(change.mean, change.mean - half, change.mean + half, change.p_value)
