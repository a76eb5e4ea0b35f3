"""The scores of a run's completions, by whether their answers are right."""

from __future__ import annotations

from array import array

from .clustered import Observations, ScoreBin, auroc, expected_error, score_bins
from .events import ProblemSolved


class ScoreCalibration:
    """Collects the scores of completions."""

    def __init__(self) -> None:
        self._scores, self._right = array("d"), array("b")
        self._problems = array("l")
        self._count = 0
        self.without_score = 0
        """Completions that were never scored."""

    def add(self, event: ProblemSolved) -> None:
        """Take in a problem's completions; those without answer are wrong. One without reference
        says nothing.
        """
        if event.correct is None:
            return
        for completion in event.completions:
            if completion.score is None:
                self.without_score += 1
                continue
            self._scores.append(completion.score)
            self._right.append(
                completion.group >= 0 and bool(event.groups[completion.group].correct)
            )
            self._problems.append(self._count)
        self._count += 1

    @property
    def observations(self) -> Observations:
        """The scored completions."""
        return Observations.of(self._scores, map(bool, self._right), self._problems, self._count)

    @property
    def right(self) -> int:
        """Scored completions that are right."""
        return sum(self._right)

    @property
    def wrong(self) -> int:
        """Scored completions that are wrong."""
        return len(self._right) - self.right

    @property
    def auroc(self) -> float | None:
        """The area under the ROC curve; None unless some are right and some are wrong."""
        area = auroc(self.observations)
        return area.value if area else None

    @property
    def expected_error(self) -> float | None:
        """Expected calibration error over 10 bins; None without scores."""
        error = expected_error(self.observations)
        return error.value if error else None

    def bins(self, count: int) -> list[ScoreBin]:
        """Scores from 0 to 1 in equal bins; a score outside is in the nearest one."""
        return score_bins(self.observations, count)
