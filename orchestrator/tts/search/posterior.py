"""What is believed of a mean, from the values seen so far; drawn from for Thompson sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass

PRIOR_MEAN = 0.0
"""The mean that is believed in before any value is seen."""
PRIOR_WEIGHT = 1.0
"""How many values that belief is worth (kappa)."""
PRIOR_FREEDOM = 1.0
"""How many values the belief about the variance is worth (nu)."""
PRIOR_VARIANCE = 0.1
"""The variance that is believed in before any value is seen (tau squared)."""


@dataclass(slots=True)
class Posterior:
    """The mean of normal values whose variance is not known either.

    Its conjugate prior is the normal-inverse-chi-squared distribution (Murphy, "Probabilistic
    machine learning: advanced topics", 3.4.3.3), so the mean has a Student t distribution. The
    numbers of the prior are treequest's.
    """

    count: int = 0
    mean: float = 0.0
    """Mean of the observed values."""
    squares: float = 0.0
    """The sum of their squared distances from that mean."""

    def see(self, value: float) -> None:
        """Take in one value (Welford's update)."""
        self.count += 1
        distance = value - self.mean
        self.mean += distance / self.count
        self.squares += distance * (value - self.mean)

    @property
    def location(self) -> float:
        """The mean that is most likely."""
        return (PRIOR_WEIGHT * PRIOR_MEAN + self.count * self.mean) / (PRIOR_WEIGHT + self.count)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the t distribution."""
        return PRIOR_FREEDOM + self.count

    @property
    def scale(self) -> float:
        """Scale of the t distribution."""
        weight = PRIOR_WEIGHT + self.count
        surprise = PRIOR_WEIGHT * self.count / weight * (self.mean - PRIOR_MEAN) ** 2
        variance = (PRIOR_FREEDOM * PRIOR_VARIANCE + self.squares + surprise) / self.freedom
        return math.sqrt(variance / weight)

    def draw(self, first: float, second: float) -> float:
        """A mean drawn from what is believed, by two numbers of (0, 1]."""
        return self.location + self.scale * student_t(self.freedom, first, second)


def student_t(freedom: float, first: float, second: float) -> float:
    """A draw of Student's t distribution from two independent uniform ones of (0, 1].

    Without rejection, so that a draw takes two numbers, no more and no less: Bailey, "Polar
    generation of random variates with the t-distribution" (1994).
    """
    radius = math.sqrt(freedom * (first ** (-2 / freedom) - 1))
    return radius * math.cos(2 * math.pi * second)
