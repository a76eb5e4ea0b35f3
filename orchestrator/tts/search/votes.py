"""The votes of completions so far, for searches that end once they are decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass


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

    def add(self, text: str, weight: float) -> AnswerForm | None:
        """Count one completion; the form of its answer."""
        if answer := self._answer_of(text):
            self._weights[answer] += weight
        return answer

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
