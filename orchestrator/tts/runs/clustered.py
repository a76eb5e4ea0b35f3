"""How well scores tell right from wrong, with intervals that respect problems.

Chains of one problem are alike, and steps of one chain more so: a thousand steps of twenty problems
tell no more than those twenty. Each estimate therefore comes with its influence values, one for
each problem: what the problem adds to the deviation of the estimate from the truth, in first order.
Their squares sum up to the variance (the infinitesimal jackknife; for the area under the ROC curve
the estimator of Obuchowski, Nonparametric analysis of clustered ROC curve data, 1997, which is that
of DeLong et al., 1988, where each problem has one observation). Two estimates on the same problems
are compared by the differences of these values, so that such comparisons are paired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from .statistics import Z_95, joint_t, wilson

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LEAST_PROBABILITY = 1e-4
"""A score of 0 or 1 counts as this far from it where its logarithm is taken: scores are quantised
to 1e-4."""
ENOUGH_WITHIN = 20
"""Problems with right and wrong chains that it takes to judge a verifier within problems."""
FOLDS = 5
"""Parts of problems, each of which is judged by what the others teach."""
_FEW = 100
"""Problems up to which an interval is one of Student's t."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic with what each problem contributes to its error."""

    value: float
    influences: Floats
    """Influence value of each problem; 0 for one without an observation."""
    problems: int
    """Problems with observations."""
    most: float = math.inf
    """Independent observations that it is worth, at most."""
    bounded: bool = True
    """Whether it is within [0, 1], as a share is."""

    @property
    def error(self) -> float:
        """Standard error; infinite for a single problem."""
        if self.problems < 2:
            return math.inf
        spread = float(self.influences @ self.influences)
        return math.sqrt(spread * self.problems / (self.problems - 1))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return self.joint_interval(1)

    def joint_interval(self, comparisons: int) -> tuple[float, float]:
        """The interval, where so many are to hold together in 95% of cases (Bonferroni).

        That of a share or an area is Wilson's with as many observations as would have this standard
        error. Where all observations agree, problems are counted.
        """
        if self.problems < 2:
            return (0.0, 1.0) if self.bounded else (-math.inf, math.inf)
        alone = self.problems > _FEW and comparisons == 1
        z = Z_95 if alone else joint_t(min(self.problems - 1, _FEW), comparisons)
        if not self.bounded:
            return self.value - z * self.error, self.value + z * self.error
        spread, variance = self.value * (1 - self.value), self.error**2
        count = min(spread / variance if variance > 1e-12 else self.problems, self.most)
        return wilson(self.value, max(count, 1.0), z)

    def __sub__(self, other: Self) -> Estimate:
        """The paired difference; both are of the same list of problems."""
        return Estimate(
            self.value - other.value,
            self.influences - other.influences,
            max(self.problems, other.problems),
            bounded=False,
        )


@dataclass(frozen=True, eq=False)
class Observations:
    """Scores with their labels, and which problem each belongs to."""

    scores: Floats
    right: Flags
    problems: Numbers
    """The number of each one's problem."""
    count: int
    """Problems that there are, with or without an observation."""

    @classmethod
    def of(
        cls, scores: Iterable[float], right: Iterable[bool], problems: Iterable[int], count: int
    ) -> Self:
        """Observations from plain numbers."""
        return cls(
            np.array(list(scores), np.float64),
            np.array(list(right), np.bool_),
            np.array(list(problems), np.int64),
            count,
        )

    def __len__(self) -> int:
        return len(self.scores)

    def where(self, mask: Flags | Numbers) -> Observations:
        """The observations under a mask, or at these places, of the same list of problems."""
        return Observations(self.scores[mask], self.right[mask], self.problems[mask], self.count)

    def scored(self, scores: Floats) -> Observations:
        """The observations with other scores."""
        return Observations(scores, self.right, self.problems, self.count)

    def sums(self, values: Floats | Flags | None = None) -> Floats:
        """The sum of values in each problem; without values, how many observations it has."""
        return np.bincount(self.problems, values, self.count).astype(np.float64)


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """Observations whose scores are from `low` to below `high`; the last bin has its end, too."""

    low: float
    high: float
    right: int
    wrong: int
    mean_score: float | None
    """None without observations."""


def ratio(parts: Floats, wholes: Floats, *, bounded: bool = True) -> Estimate | None:
    """The sum of parts over the sum of wholes, both by problem; None if there is nothing.

    Its influence values are those of the jackknife, which leaves one problem out: they are larger
    where few problems are most of the whole.
    """
    total = float(wholes.sum())
    if not total:
        return None
    value = float(parts.sum()) / total
    having = int(np.count_nonzero(wholes))
    others = np.maximum(total - wholes, 1e-9 * total)
    influences = (parts - value * wholes) / others * (1 - 1 / having)
    return Estimate(value, influences, having, total, bounded)


def folds_of(count: int) -> Numbers:
    """The fold of each of so many problems: of equal sizes, and without regard to their order.

    Levels often come in turn, and the place in the file would make each fold one level.
    """
    folds: Numbers = np.random.default_rng(0).permutation(count) % FOLDS
    return folds


def auroc(these: Observations) -> Estimate | None:
    """The chance that a right one is scored above a wrong one, ties counting half.

    The area under the receiver operating characteristic, over pairs of all problems. None unless
    there are both right and wrong ones.
    """
    right, wrong = these.where(these.right), these.where(~these.right)
    if not len(right) or not len(wrong):
        return None
    above = _share_below(right.scores, wrong.scores)
    below = 1 - _share_below(wrong.scores, right.scores)
    value = float(above.mean())
    influences = right.sums(above - value) / len(right) + wrong.sums(below - value) / len(wrong)
    having = int(np.count_nonzero(these.sums()))
    # 2 min(right, wrong) is what independent, nearly separate normal scores are worth
    return Estimate(value, influences, having, 2.0 * min(len(right), len(wrong)))


def _share_below(scores: Floats, others: Floats) -> Floats:
    """The share of the others that lie below each score, ties counting half."""
    ordered = np.sort(others)
    ends = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    shares: Floats = ends / (2 * len(ordered))
    return shares


def auroc_within(these: Observations) -> Estimate | None:
    """AUROC over pairs of one problem; None if no problem has both kinds.

    What a search or best-of-n needs: they never compare chains of two problems.
    """
    if (these.problems[1:] < these.problems[:-1]).any():
        these = these.where(np.argsort(these.problems, kind="stable"))
    sizes, rights = these.sums(), these.sums(these.right)
    ends = sizes.cumsum().astype(np.int64)
    wins, pairs = np.zeros(these.count), np.zeros(these.count)
    for problem in np.flatnonzero((rights > 0) & (rights < sizes)):
        mine = slice(ends[problem - 1] if problem else 0, ends[problem])
        scores, right = these.scores[mine], these.right[mine]
        pairs[problem] = right.sum() * (~right).sum()
        wins[problem] = _share_below(scores[right], scores[~right]).mean() * pairs[problem]
    return ratio(wins, pairs)


def ranking(these: Observations) -> Estimate | None:
    """The AUROC that a verifier is judged by: within problems, where enough have both kinds."""
    within = auroc_within(these)
    return within if within and within.problems >= ENOUGH_WITHIN else auroc(these)


def commonest(these: Observations) -> tuple[float, Estimate, int] | None:
    """The score that most have, their share, and how many different scores there are."""
    values, sizes = np.unique(these.scores, return_counts=True)
    if not len(values):
        return None
    score = float(values[np.argmax(sizes)])
    share = ratio(these.sums(these.scores == score), these.sums())
    assert share is not None
    return score, share, len(values)


def brier(these: Observations) -> Estimate | None:
    """The mean squared difference of score and label (Brier 1950)."""
    return ratio(these.sums((these.scores - these.right) ** 2), these.sums())


def log_loss(these: Observations) -> Estimate | None:
    """The mean negative logarithm of the probability that a score gives to its label, in nats."""
    scores = np.clip(these.scores, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    losses = -np.log(np.where(these.right, scores, 1 - scores))
    return ratio(these.sums(losses), these.sums(), bounded=False)


def _bin_numbers(these: Observations, count: int) -> Numbers:
    """The bin of each score among equal bins of [0, 1]; one outside is in the nearest."""
    return np.clip((these.scores * count).astype(np.int64), 0, count - 1)


def score_bins(these: Observations, count: int) -> list[ScoreBin]:
    """Scores from 0 to 1 in equal bins; a score outside is in the nearest one."""
    places = _bin_numbers(these, count)
    sizes = np.bincount(places, minlength=count)
    rights = np.bincount(places, these.right, count).astype(int)
    totals = np.bincount(places, these.scores, count)
    return [
        ScoreBin(
            place / count,
            (place + 1) / count,
            int(right),
            int(size - right),
            float(total / size) if size else None,
        )
        for place, (size, right, total) in enumerate(zip(sizes, rights, totals, strict=True))
    ]


def binned(these: Observations, count: int) -> list[Observations]:
    """The observations in each of these bins."""
    places = _bin_numbers(these, count)
    return [these.where(places == place) for place in range(count)]


def expected_error(these: Observations, count: int = 10) -> Estimate | None:
    """Expected calibration error: mean |mean score - share right| over bins, by observations.

    Naeini, Cooper and Hauskrecht (2015). It is never negative, so noise adds to it: few
    observations in a bin make it look worse than it is.
    """
    places = _bin_numbers(these, count)
    gaps = these.scores - these.right
    signs = np.sign(np.bincount(places, gaps, count))
    return ratio(these.sums(gaps * signs[places]), these.sums())


def rank_correlation(these: Observations, values: Floats) -> Estimate | None:
    """The rank correlation of scores with values among equally labelled observations.

    Spearman's, within the right and within the wrong ones; None if either is constant.
    """
    first, second = np.zeros(len(these)), np.zeros(len(these))
    for mask in (these.right, ~these.right):
        first[mask] = _standard_ranks(these.scores[mask])
        second[mask] = _standard_ranks(values[mask])
    both = first.any() and second.any()
    if not both:
        return None
    first /= math.sqrt(float((first**2).mean()))
    second /= math.sqrt(float((second**2).mean()))
    value = float((first * second).mean())
    terms = first * second - value * (first**2 + second**2) / 2
    having = int(np.count_nonzero(these.sums()))
    return Estimate(value, these.sums(terms) / len(these), having, bounded=False)


def _standard_ranks(values: Floats) -> Floats:
    """The ranks of values, ties at their mean, with mean 0 and variance 1; zeros if all tie."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return np.zeros(len(values))
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[places]
    standard: Floats = (ranks - ranks.mean()) / ranks.std()
    return standard


def harmonic_mean(one: Estimate, other: Estimate) -> Estimate:
    """The harmonic mean of two shares, as F1 is; 0 if both are."""
    total = one.value + other.value
    problems = max(one.problems, other.problems)
    most = min(one.most, other.most)
    if not total:
        return Estimate(0.0, np.zeros_like(one.influences), problems, most)
    slopes = 2 * (other.value / total) ** 2, 2 * (one.value / total) ** 2
    influences = slopes[0] * one.influences + slopes[1] * other.influences
    return Estimate(2 * one.value * other.value / total, influences, problems, most)
