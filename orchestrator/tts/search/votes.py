"""The votes of completions so far, and how sure their leader is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from .thought import significant


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """Normal form of an answer: equal forms are equal answers.

    `exact` says that a different exact form is certainly a different answer. Any other pair of
    forms may turn out equal when the answers are compared in full.
    """

    form: str
    exact: bool


AnswerOf = Callable[[str], AnswerForm | None]
"""The form of the answer in a completion's text; None if it holds none."""


class Votes:
    """The weight of each answer so far."""

    def __init__(self, answer_of: AnswerOf) -> None:
        """`answer_of` must be pure: a stop may depend on texts only, never on timing."""
        self._answer_of = answer_of
        self._weights: defaultdict[AnswerForm, float] = defaultdict(float)

    def add(self, text: str, weight: float) -> None:
        """Count one completion."""
        if answer := self._answer_of(text):
            self._weights[answer] += weight

    @property
    def first_and_second(self) -> tuple[float, float]:
        """The weights of the leading answer and of its runner-up, which may weigh more.

        The runner-up is taken at its largest: all forms that are not exact, as if they were one,
        together with the heaviest exact one.
        """
        if not self._weights:
            return 0.0, 0.0
        leader = max(self._weights, key=self._weights.__getitem__)
        others = {form: weight for form, weight in self._weights.items() if form != leader}
        runner_up = sum(weight for form, weight in others.items() if not form.exact)
        runner_up += max((weight for form, weight in others.items() if form.exact), default=0.0)
        return self._weights[leader], runner_up


def chance_of_reversal(first: float, second: float) -> float:
    """The probability that the generator gives the second of two answers more often.

    With v1 and v2 votes, and before any vote each share as likely as another, it is P(p < 1/2) for
    p ~ Beta(v1 + 1, v2 + 1), and 1/2 unless v1 > v2: the regularised incomplete beta function at
    1/2, by its continued fraction (Press et al., "Numerical recipes", 6.4).
    """
    if first <= second:
        return 0.5
    a, b = first + 1, second + 1
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - (a + b) * math.log(2)
    c, d = 1.0, 1 / (1 - (a + b) / (a + 1) / 2)
    fraction = d
    for m in range(1, 100_000):
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) / 2
        odd = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) / 2
        change = 1.0
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return significant(math.exp(log_factor) * fraction / a)
