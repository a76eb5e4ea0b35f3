"""How well the verifier's scores tell right completions from wrong ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .events import ProblemSolved

_DIGITS = 4
"""Scores are quantised to 1e-4, so that counting them by these digits loses nothing."""


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """Completions whose scores are from `low` to below `high`; the last bin has its end, too."""

    low: float
    high: float
    right: int
    wrong: int
    mean_score: float | None
    """None without completions."""

    @property
    def share_right(self) -> float | None:
        """How many of them are right; None without any."""
        count = self.right + self.wrong
        return self.right / count if count else None


class ScoreCalibration:
    """Counts the scores of completions, by whether their answers are right."""

    def __init__(self) -> None:
        self.by_right: dict[bool, Counter[float]] = {True: Counter(), False: Counter()}
        """Completions by score."""
        self.without_score = 0
        """Completions that were never scored."""

    def add(self, event: ProblemSolved) -> None:
        """Take in a problem's completions; those without answer are wrong. One without reference
        says nothing.
        """
        if event.correct is None:
            return
        for done in event.completions:
            if done.score is None:
                self.without_score += 1
                continue
            right = done.group >= 0 and bool(event.groups[done.group].correct)
            self.by_right[right][round(done.score, _DIGITS)] += 1

    @property
    def right(self) -> int:
        """Scored completions that are right."""
        return self.by_right[True].total()

    @property
    def wrong(self) -> int:
        """Scored completions that are wrong."""
        return self.by_right[False].total()

    @property
    def auroc(self) -> float | None:
        """The chance that a right completion is scored above a wrong one, ties counting half.

        The area under the receiver operating characteristic, over completions of all problems. None
        unless there are both right and wrong ones.
        """
        if not self.right or not self.wrong:
            return None
        below = pairs = 0.0
        for score in sorted(self.by_right[True].keys() | self.by_right[False].keys()):
            wrong = self.by_right[False][score]
            pairs += self.by_right[True][score] * (below + wrong / 2)
            below += wrong
        return pairs / (self.right * self.wrong)

    @property
    def expected_error(self) -> float | None:
        """Expected calibration error over 10 bins: mean |mean score - share right|, by completions.

        Naeini, Cooper and Hauskrecht (2015). None without scores.
        """
        count = self.right + self.wrong
        if not count:
            return None
        return sum(
            abs(part.mean_score - part.share_right) * (part.right + part.wrong) / count
            for part in self.bins(10)
            if part.mean_score is not None and part.share_right is not None
        )

    def bins(self, count: int) -> Iterator[ScoreBin]:
        """Scores from 0 to 1 in equal bins; a score outside is in the nearest one."""
        sums = [0.0] * count
        counts = {True: [0] * count, False: [0] * count}
        for right, scores in self.by_right.items():
            for score, completions in scores.items():
                place = min(max(int(score * count), 0), count - 1)
                counts[right][place] += completions
                sums[place] += score * completions
        for place in range(count):
            ours, others = counts[True][place], counts[False][place]
            mean = sums[place] / (ours + others) if ours + others else None
            yield ScoreBin(place / count, (place + 1) / count, ours, others, mean)
