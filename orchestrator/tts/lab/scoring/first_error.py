"""Finding the first wrong step, as ProcessBench evaluates it (Zheng et al. 2024, arXiv 2412.06559).

A step counts as right where its score is above a threshold, and a chain's prediction is its first
step that does not, or -1. A prediction is right if it equals the label. Reported are the shares of
right predictions among chains with an error and among those without, and their harmonic mean, F1.

For verifiers with scores the authors take the threshold with the highest F1 on the GSM8K subset.
Here, too, where chains of a level `gsm8k` are among others. Elsewhere each fifth of the problems
is judged by the threshold of the other four, so that none is judged by one that it has chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tts.runs.clustered import (
    FOLDS,
    Estimate,
    Flags,
    Numbers,
    Observations,
    folds_of,
    harmonic_mean,
    ratio,
)

REFERENCE_LEVEL: Final = "gsm8k"
"""The subset of ProcessBench on which its authors choose thresholds."""


@dataclass(frozen=True, eq=False)
class FirstError:
    """How often the first wrong step is found."""

    threshold: float
    """What a score must be above; the best of all problems where each fold has its own."""
    chosen_on: str
    """`given`, `gsm8k`, or `other problems`."""
    erroneous: Estimate
    """Share of right predictions among chains with a wrong step."""
    correct: Estimate
    """The same among chains without one."""
    f1: Estimate
    by_level: dict[str, Estimate]
    """F1 of each level that has both kinds of chains."""


def prediction(scores: Sequence[float], threshold: float) -> int:
    """The first step whose score is not above the threshold, or -1."""
    return next((place for place, score in enumerate(scores) if score <= threshold), -1)


def best_threshold(scores: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """The threshold with the highest F1; 0.5 unless there are chains of both kinds.

    A prediction changes at scores only. Of a stretch without one the middle is taken, and of equal
    stretches the lowest.
    """
    # a chain with an error is right from its label's score on, until a step before it falls, too
    wrong = [
        (s[label], min(s[:label], default=math.inf))
        for s, label in zip(scores, labels, strict=True)
        if label >= 0
    ]
    lows = np.array(sorted(low for low, high in wrong if low < high))
    highs = np.array(sorted(high for low, high in wrong if low < high))
    least = np.array(sorted(min(s) for s, label in zip(scores, labels, strict=True) if label < 0))
    if not wrong or not len(least):
        return 0.5
    at = np.unique(np.concatenate([lows, highs[np.isfinite(highs)], least]))
    found = np.searchsorted(lows, at, "right") - np.searchsorted(highs, at, "right")
    passed = len(least) - np.searchsorted(least, at, "right")
    erroneous, correct = found / len(wrong), passed / len(least)
    total = erroneous + correct
    f1 = np.divide(2 * erroneous * correct, total, out=np.zeros(len(at)), where=total > 0)
    best = int(np.argmax(f1))
    following = at[best + 1] if best + 1 < len(at) else max(1.0, float(at[best]))
    return float(at[best] + following) / 2


def find_first_errors(
    scores: Sequence[Sequence[float]],
    labels: Sequence[int],
    problems: Numbers,
    count: int,
    levels: Sequence[str | None],
    threshold: float | None = None,
) -> FirstError | None:
    """The evaluation of chains with known first errors; None unless both kinds are there.

    `problems` are the numbers of the chains' problems, of `count`; `labels` the indices of first
    wrong steps, -1 where there is none.
    """
    wrong = np.array(labels, np.int64) >= 0
    if not wrong.any() or wrong.all():
        return None
    chosen_on = "given"
    if threshold is not None:
        thresholds = [threshold]
    elif len({*levels}) > 1 and REFERENCE_LEVEL in levels:
        chosen_on = REFERENCE_LEVEL
        thresholds = [_best([level == REFERENCE_LEVEL for level in levels], scores, labels)]
    else:
        chosen_on = "other problems"
        folds = folds_of(count)[problems]
        thresholds = [_best(folds != fold, scores, labels) for fold in range(FOLDS)]
    limits = [thresholds[place % len(thresholds)] for place in folds_of(count)[problems].tolist()]
    match = np.array(
        [
            prediction(each, limit) == label
            for each, limit, label in zip(scores, limits, labels, strict=True)
        ]
    )
    found = _f1(match, wrong, problems, count)
    assert found is not None
    by_level = {}
    for level in sorted({level for level in levels if level is not None}):
        mine = np.array([each == level for each in levels])
        if (part := _f1(match[mine], wrong[mine], problems[mine], count)) is not None:
            by_level[level] = part[2]
    alone = thresholds[0] if len(thresholds) == 1 else best_threshold(scores, labels)
    return FirstError(alone, chosen_on, *found, by_level if len(by_level) > 1 else {})


def _best(
    chosen: Sequence[bool] | Flags, scores: Sequence[Sequence[float]], labels: Sequence[int]
) -> float:
    mine = np.flatnonzero(np.asarray(chosen)).tolist()
    return best_threshold([scores[place] for place in mine], [labels[place] for place in mine])


def _f1(
    match: Flags, wrong: Flags, problems: Numbers, count: int
) -> tuple[Estimate, Estimate, Estimate] | None:
    """Both accuracies and their harmonic mean; None unless both kinds are there."""

    def share(chosen: Flags) -> Estimate | None:
        these = Observations(
            match[chosen].astype(np.float64), wrong[chosen], problems[chosen], count
        )
        return ratio(these.sums(these.scores), these.sums())

    erroneous, correct = share(wrong), share(~wrong)
    if erroneous is None or correct is None:
        return None
    return erroneous, correct, harmonic_mean(erroneous, correct)
