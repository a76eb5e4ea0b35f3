"""Maps from a verifier's scores to the probability of being right, checked out of fold.

    score         0     0.02    0.31    0.88    1        points: few, both coordinates rising
    probability   0.02  0.021   0.2     0.69    0.93     between them straight lines

A map is fitted to groups of neighbouring scores by isotonic regression (Zadrozny and Elkan 2002),
so only the order of scores counts. A better score always stands for a better probability, if only
by a little: what isotonic regression makes one step becomes one point. The probability of a group
is drawn towards that of all, by as much as PRIOR observations weigh.

A map is believed where it predicts problems that it was not fitted to better than the scores
themselves do. Steps before the last get a map of their own where it predicts them better than the
last steps' map does. Both beyond noise, by the paired difference of log loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tts.runs.clustered import (
    FOLDS,
    Estimate,
    Floats,
    Observations,
    brier,
    expected_error,
    folds_of,
    log_loss,
)
from tts.search.calibration import isotonic

from .measurement import Measurement

GROUPS: Final = 12
"""Groups of scores whose probability is estimated, at most."""
GROUP_SIZE: Final = 20
"""Observations of a group, at least."""
PRIOR: Final = 2.0
"""Observations that the share of all counts for in each group (Laplace)."""
SLOPE: Final = 0.01
"""How far the probability at score 0 lies below that of the lowest group, as a share of it; at
score 1 likewise above the highest."""
ENOUGH: Final = 20
"""Right ones, wrong ones and problems that a map takes, each at least."""

Points = tuple[tuple[float, float], ...]
AS_THEY_ARE: Final[Points] = ((0.0, 0.0), (1.0, 1.0))


@dataclass(frozen=True, eq=False)
class MapCheck:
    """A map, and how well it predicts problems that it was not fitted to."""

    points: Points
    raw: dict[str, Estimate]
    """`log loss`, `Brier score` and `calibration error` of the scores as they are."""
    mapped: dict[str, Estimate]
    """Losses of the probabilities that the other folds' maps make of the scores."""
    gain: Estimate
    """Log loss of the scores minus that of the probabilities, in nats."""

    @property
    def helps(self) -> bool:
        """Whether it predicts better than the scores do, beyond noise."""
        return self.gain.interval[0] > 0


@dataclass(frozen=True, eq=False)
class VerifierMaps:
    """The maps of last steps and of the steps before them."""

    final: MapCheck | None
    """None where there is too little to fit one."""
    inner: MapCheck | None
    inner_gain: Estimate | None
    """Log loss of inner steps by the final map minus that by their own; None without both."""

    @property
    def inner_differs(self) -> bool:
        """Whether inner steps need a map of their own."""
        return self.inner_gain is not None and self.inner_gain.interval[0] > 0

    @property
    def accepted(self) -> bool:
        """Whether the maps are better than none."""
        return self.final is not None and (self.final.helps or self.inner_differs)

    @property
    def verdict(self) -> str:
        """Whether the maps are believed, and why, as a sentence."""
        if self.final is None:
            return (
                f"No map: it takes {ENOUGH} right answers, {ENOUGH} wrong ones and {ENOUGH} "
                "problems."
            )
        low, high = self.final.gain.interval
        gain = f"log loss falls by {self.final.gain.value:.3f} [{low:.3f}, {high:.3f}] nats"
        inner = "Steps before the last need a map of their own" if self.inner_differs else ""
        if self.final.helps:
            more = f" {inner}." if inner else ""
            return f"The map predicts other problems better than the scores do: {gain}.{more}"
        return (
            f"{inner or 'No map'}: scores of last steps predict other problems as well as a map of "
            f"them does, but for noise: {gain}."
        )


def calibrate(final: Observations | None, inner: Observations | None = None) -> VerifierMaps:
    """The maps of last steps and of inner steps; both are observed on one list of problems."""
    if final is None or not _is_enough(final):
        return VerifierMaps(None, None, None)
    if inner is None or not _is_enough(inner):
        return VerifierMaps(_check(final), None, None)
    own, by_final = _out_of_fold(inner, inner), _out_of_fold(final, inner)
    gain = _loss(inner.scored(by_final)) - _loss(inner.scored(own))
    return VerifierMaps(_check(final), _check(inner), gain)


def calibration_fields(measurement: Measurement, maps: VerifierMaps) -> dict[str, Any]:
    """The fields of a deployment's `verifier.calibration`, but for `measured`; empty without maps.

    Where a map is no better than the scores, they stay as they are. The areas are those within
    problems where enough problems have both kinds: a search compares chains of one problem.
    """
    if maps.final is None:
        return {}
    points = maps.final.points if maps.accepted else AS_THEY_ARE
    fields: dict[str, Any] = {"final": [list(point) for point in points]}
    if maps.inner is not None and maps.inner_differs:
        fields["inner"] = [list(point) for point in maps.inner.points]
    for name, kind in (("final_auroc", measurement.final), ("inner_auroc", measurement.inner)):
        if kind is not None and (area := kind.ranking) is not None:
            fields[name] = [round(value, 4) for value in (area.value, *area.interval)]
    return fields


def fit(these: Observations) -> Points:
    """The points of the rising map that fits observations best; there must be some."""
    order = np.argsort(these.scores, kind="stable")
    scores, right = these.scores[order], these.right[order]
    count = len(scores)
    share = (float(right.sum()) + 1) / (count + 2)
    size = max(count / GROUPS, GROUP_SIZE)
    starts = [0]
    for start in np.flatnonzero(np.diff(scores)) + 1:  # equal scores stay together
        if start - starts[-1] >= size and count - start >= size / 2:
            starts.append(int(start))
    edges = [*starts, count]
    rights = np.add.reduceat(right.astype(np.float64), starts)
    sizes = np.diff(edges)
    rising = isotonic(
        [float(p) for p in (rights + PRIOR * share) / (sizes + PRIOR)],
        [float(n) for n in sizes + PRIOR],
    )
    points: list[tuple[float, float]] = []
    first = 0
    for place, probability in enumerate(rising):
        if place + 1 < len(rising) and rising[place + 1] - probability < 1e-5:
            continue  # one step of the regression: one point, at its median
        middle = (edges[first] + edges[place + 1] - 1) // 2
        points.append((round(float(scores[middle]), 6), round(probability, 6)))
        first = place + 1
    lowest, highest = points[0], points[-1]
    if lowest[0] > 0:
        points.insert(0, (0.0, round(lowest[1] * (1 - SLOPE), 8)))
    if highest[0] < 1:
        points.append((1.0, round(highest[1] + (1 - highest[1]) * SLOPE, 8)))
    return tuple(points)


def apply(points: Points, scores: Floats) -> Floats:
    """The probabilities that scores stand for."""
    at, probabilities = zip(*points, strict=True)
    mapped: Floats = np.interp(scores, at, probabilities)
    return mapped


def _is_enough(these: Observations) -> bool:
    kinds = int(these.right.sum()), int((~these.right).sum()), np.count_nonzero(these.sums())
    return min(kinds) >= ENOUGH


def _out_of_fold(teachers: Observations, these: Observations) -> Floats:
    """The probabilities of scores, each by the map of the teachers in other folds."""
    folds = folds_of(these.count)
    mapped = np.empty(len(these))
    for fold in range(FOLDS):
        others = teachers.where(folds[teachers.problems] != fold)
        mine = folds[these.problems] == fold
        mapped[mine] = apply(fit(others), these.scores[mine])
    return mapped


def _check(these: Observations) -> MapCheck:
    mapped = these.scored(_out_of_fold(these, these))
    return MapCheck(fit(these), _losses(these), _losses(mapped), _loss(these) - _loss(mapped))


_LOSSES: Final[dict[str, Callable[[Observations], Estimate | None]]] = {
    "log loss": log_loss,
    "Brier score": brier,
    "calibration error": expected_error,
}


def _losses(these: Observations) -> dict[str, Estimate]:
    return {name: loss for name, measure in _LOSSES.items() if (loss := measure(these))}


def _loss(these: Observations) -> Estimate:
    loss = log_loss(these)
    assert loss is not None
    return loss
