"""Section `verifier.calibration`: the probabilities that scores stand for, as measured."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from .section import Section

Share = Annotated[float, Field(strict=True, ge=0, le=1)]


def _rising(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) < 2 or any(
        one[0] >= other[0] or one[1] > other[1] for one, other in pairwise(points)
    ):
        raise ValueError("must be two points or more, with rising scores and rising probabilities")
    return points


CalibrationPoints = Annotated[list[tuple[Share, Share]], AfterValidator(_rising)]
"""Points [score, probability] of a rising function, between which lines are drawn."""
Auroc = tuple[Share, Share, Share]
"""The area under a ROC curve: the estimate and the ends of its 95% interval."""


class MeasuredOn(Section):
    """What a calibration was measured on, and with which verifier."""

    on: str
    """The dataset, file or run."""
    problems: Annotated[int, Field(ge=1)]
    """How many problems it has."""
    chains: Annotated[int, Field(ge=1)]
    """How many solutions of them were scored."""
    date: str
    """The day, as YYYY-MM-DD."""
    verifier: dict[str, str] = Field(default={})
    """What decides its scores, in short hashes: `tts lint` says when one has changed since."""


class VerifierCalibration(Section):
    """The probabilities of being right that a verifier's scores stand for; `tts score --write`
    measures them.
    """

    final: CalibrationPoints
    """Points [score, probability] of last steps: that the answer is right."""
    inner: CalibrationPoints | None = None
    """Points of the steps before the last; unset: those of last steps."""
    final_auroc: Auroc | None = None
    """How well scores of last steps tell right answers from wrong ones: the area under the ROC
    curve, and its 95% interval. Strategy `auto` believes a verifier by it."""
    inner_auroc: Auroc | None = None
    """The area under the ROC curve of the steps before the last."""
    measured: MeasuredOn | None = None
    """What it was measured on; unset where the points were written by hand."""

    @model_validator(mode="after")
    def _intervals_hold_their_estimates(self) -> VerifierCalibration:
        for name in ("final_auroc", "inner_auroc"):
            interval = getattr(self, name)
            if interval and not interval[1] <= interval[0] <= interval[2]:
                raise ValueError(f"{name}: must be [estimate, low, high], low to high around it")
        return self
