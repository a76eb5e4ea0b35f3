"""Finding the first wrong step, as ProcessBench evaluates it (Zheng et al. 2024, arXiv 2412.06559).

A step counts as right where its score is above a threshold, and a chain's prediction is its first
step that does not, or -1. A prediction is right if it equals the label. Reported are the shares of
right predictions among chains with an error and among those without, and their harmonic mean, F1.

The authors ask verifiers with labels for the likelier one, which is a threshold of 0.5; for those
with scores they take the threshold with the highest F1 on the GSM8K subset. So does this module
where chains of a level `gsm8k` are among others. Elsewhere each fifth of the problems is judged by
the threshold of the other four, so that none is judged by one that it has chosen.
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
    """`gsm8k` or `other problems`."""
    erroneous: Estimate
    """Share of right predictions among chains with a wrong step."""
    correct: Estimate
    """Share of right predictions among chains without one."""
    f1: Estimate
    f1_at_half: Estimate
    """F1 with a threshold of 0.5, which verifiers with two labels are evaluated at."""
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
    hits = np.searchsorted(lows, at, "right") - np.searchsorted(highs, at, "right")
    passed = len(least) - np.searchsorted(least, at, "right")
    erroneous, correct = hits / len(wrong), passed / len(least)
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
) -> FirstError | None:
    """The evaluation of chains with known first errors; None unless both kinds are there.

    `problems` are the numbers of the chains' problems, of `count`; `labels` the indices of first
    wrong steps, -1 where there is none.
    """
    folds = folds_of(count)[problems]
    reference = np.array([level == REFERENCE_LEVEL for level in levels])
    if reference.any() and not reference.all():
        chosen_on, best = REFERENCE_LEVEL, _best(reference, scores, labels)
        thresholds = [best] * FOLDS
    else:
        chosen_on, best = "other problems", best_threshold(scores, labels)
        thresholds = [_best(folds != fold, scores, labels) for fold in range(FOLDS)]
    limits = [thresholds[fold] for fold in folds.tolist()]
    predictions = [prediction(each, limit) for each, limit in zip(scores, limits, strict=True)]
    shares = evaluate(predictions, labels, problems, count)
    at_half = evaluate([prediction(each, 0.5) for each in scores], labels, problems, count)
    if shares is None or at_half is None:
        return None
    by_level = {}
    for level in sorted({level for level in levels if level is not None}):
        mine = np.flatnonzero([each == level for each in levels])
        part = [predictions[place] for place in mine], [labels[place] for place in mine]
        if part_shares := evaluate(*part, problems[mine], count):
            by_level[level] = part_shares[2]
    return FirstError(best, chosen_on, *shares, at_half[2], by_level if len(by_level) > 1 else {})


def evaluate(
    predictions: Sequence[int], labels: Sequence[int], problems: Numbers, count: int
) -> tuple[Estimate, Estimate, Estimate] | None:
    """ProcessBench's shares of right predictions, among chains with an error and among those
    without, and their harmonic mean; None unless both kinds are there.
    """
    wrong = np.array(labels, np.int64) >= 0
    match = np.array(predictions, np.int64) == np.array(labels, np.int64)
    these = Observations(match.astype(np.float64), wrong, problems, count)
    erroneous, correct = (
        ratio(part.sums(part.scores), part.sums())
        for part in (these.where(wrong), these.where(~wrong))
    )
    if erroneous is None or correct is None:
        return None
    return erroneous, correct, harmonic_mean(erroneous, correct)


def _best(mask: Flags, scores: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    mine = np.flatnonzero(mask).tolist()
    return best_threshold([scores[place] for place in mine], [labels[place] for place in mine])
