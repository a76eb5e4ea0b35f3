"""The confidence of a chain, from the log-probabilities of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE_UNIT = 1e-3
"""Confidences are rounded to this, so that float noise does not move the end of a chain."""

LEAST = -100.0
"""A log-probability below this counts as this: servers write -inf or -9999 for it."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """A request for a chain's confidence, which is that of its weakest window.

    A window's is the mean of the natural logarithms of its tokens' probabilities, a multiple of
    CONFIDENCE_UNIT.
    """

    window: int
    """Tokens of a window; a shorter chain is one."""
    floor: float | None
    """A chain ends at the first token whose window lies below this; None: none does."""


class ConfidenceWatch:
    """Follows a chain's tokens as they come: its weakest window, and whether it is to end."""

    def __init__(self, request: Confidence) -> None:
        self._request = request
        self._sums = [0.0]
        """Sums of the first 0, 1, 2, ... log-probabilities."""
        self._weakest: float | None = None
        self.cut = False
        """Whether a window fell below the floor."""

    def take(self, log_probs: Sequence[float]) -> int:
        """Take in the next tokens' log-probabilities; returns how many belong to the chain."""
        window, floor = self._request.window, self._request.floor
        for place, value in enumerate(log_probs):
            if self.cut:
                return place
            self._sums.append(self._sums[-1] + max(LEAST, value))
            if len(self._sums) > window:
                mean = _rounded((self._sums[-1] - self._sums[-1 - window]) / window)
                if self._weakest is None or mean < self._weakest:
                    self._weakest = mean
                self.cut = floor is not None and mean < floor
        return len(log_probs)

    @property
    def ends_chains(self) -> bool:
        """Whether there is a floor, so that tokens are wanted as they come."""
        return self._request.floor is not None

    @property
    def weakest(self) -> float | None:
        """The confidence of the weakest window so far; None before the first token."""
        if self._weakest is not None or len(self._sums) == 1:
            return self._weakest
        return _rounded(self._sums[-1] / (len(self._sums) - 1))


def _rounded(confidence: float) -> float:
    return round(round(confidence / CONFIDENCE_UNIT) * CONFIDENCE_UNIT, 6)
