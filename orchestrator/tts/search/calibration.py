"""Probabilities of being right that a verifier's scores stand for, as measured on labels.

    final   0.0 → 0.02   0.3 → 0.2   0.9 → 0.7   1.0 → 0.93      the last step of a chain
    inner   0.0 → 0.15                          1.0 → 0.6        the steps before it

`tts score` measures it, and `verifier.calibration` of a deployment holds it. Without one a score
counts as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from .thought import significant

Interval = tuple[float, float, float]
"""An estimate with the ends of its 95% interval."""


@dataclass(frozen=True, slots=True)
class ScoreMap:
    """A rising function from scores to probabilities, by straight lines between its points."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, score: float) -> float:
        """The probability that a score stands for."""
        points = self.points
        place = min(max(1, bisect_right(points, (score, 2.0))), len(points) - 1)
        (low, least), (high, most) = points[place - 1], points[place]
        share = min(max((score - low) / (high - low), 0.0), 1.0)
        return significant(least + (most - least) * share)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The maps of a verifier, and how well its scores tell right chains from wrong ones.

    The areas under the ROC curve are those of last steps and of the steps before them; None where
    nobody has measured them.
    """

    final: ScoreMap
    inner: ScoreMap
    final_auroc: Interval | None = None
    inner_auroc: Interval | None = None

    @classmethod
    def of(
        cls,
        final: Sequence[tuple[float, float]],
        inner: Sequence[tuple[float, float]] | None = None,
        final_auroc: Interval | None = None,
        inner_auroc: Interval | None = None,
    ) -> Self:
        """The calibration with these points; those of inner steps are the last steps' if unset."""
        last = ScoreMap(tuple(final))
        return cls(last, ScoreMap(tuple(inner)) if inner else last, final_auroc, inner_auroc)

    def probability(self, score: float, *, final: bool) -> float:
        """The probability that a step's score stands for."""
        return (self.final if final else self.inner)(score)


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising values nearest to these in weighted squares.

    By pooling adjacent violators (Ayer et al. 1955), as one calibrates a classifier (Zadrozny and
    Elkan 2002).
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = value, weight, 1
        while pools and pools[-1][0] > pool[0]:
            before, heavy, size = pools.pop()
            both = heavy + pool[1]
            pool = (before * heavy + pool[0] * pool[1]) / both, both, size + pool[2]
        pools.append(pool)
    return [value for value, _, size in pools for _ in range(size)]
