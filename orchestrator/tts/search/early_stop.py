"""Stopping early, exactly: once no missing completion can change which answer wins the vote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

MAX_WEIGHT = 1.0
"""Weight of a completion at most: a score, or one vote."""
ROUNDING = 1e-9


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


class EarlyStop:
    """Weight of the answers completed so far, of `n` completions in all."""

    @classmethod
    def wanted(cls, early_stop: bool, n: int, answer_of: AnswerOf | None) -> EarlyStop | None:
        """One for a search whose parameter is on, else None; ValueError without `answer_of`."""
        if not early_stop:
            return None
        if answer_of is None:
            raise ValueError("early_stop needs answer_of, which reads the answer of a completion")
        return cls(n, answer_of)

    def __init__(self, n: int, answer_of: AnswerOf) -> None:
        """`answer_of` must be pure: the stop may depend on texts only, never on timing."""
        self._missing = n
        self._answer_of = answer_of
        self._weights: defaultdict[AnswerForm, float] = defaultdict(float)

    def add(self, text: str, weight: float) -> None:
        """Count one completion."""
        self._missing -= 1
        if answer := self._answer_of(text):
            self._weights[answer] += weight

    @property
    def decided(self) -> bool:
        """Whether the leader's lead over the runner-up is more than the missing ones can add.

        The runner-up is taken at its largest: all forms that are not exact, as if they were one,
        together with the heaviest exact one.
        """
        if not self._weights:
            return False
        leader = max(self._weights, key=self._weights.__getitem__)
        others = {form: weight for form, weight in self._weights.items() if form != leader}
        runner_up = sum(weight for form, weight in others.items() if not form.exact)
        runner_up += max((weight for form, weight in others.items() if form.exact), default=0.0)
        return self._weights[leader] - runner_up > self._missing * MAX_WEIGHT + ROUNDING
