"""Early stops: no missing completion can change the vote, or enough completions agree.

The first rule is exact: the answer is the same as with all completions. The second rule may change
the answer, and saves more. Both are functions of the texts, never of timing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

MAX_WEIGHT = 1.0
"""The most that a completion can weigh: a score, or one vote."""
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


class EarlyStop:
    """The votes so far, out of those of `n` completions."""

    @classmethod
    def of(
        cls, early_stop: bool, agree: int | None, n: int, answer_of: AnswerOf | None
    ) -> EarlyStop | None:
        """The early stop of a search that has one of the rules on, else None.

        Raises ValueError without `answer_of`.
        """
        if not early_stop and agree is None:
            return None
        if answer_of is None:
            raise ValueError("early_stop needs answer_of, which reads the answer of a completion")
        return cls(n, answer_of, by_vote=early_stop, agree=agree)

    def __init__(
        self, n: int, answer_of: AnswerOf, *, by_vote: bool = True, agree: int | None = None
    ) -> None:
        """`by_vote` stops when the vote is decided, `agree` when that many have the same answer."""
        self._missing = n
        self._by_vote = by_vote
        self._agree = agree
        self._votes = Votes(answer_of)
        self._counts: Counter[AnswerForm] = Counter()

    def add(self, text: str, weight: float) -> None:
        """Count one completion."""
        self._missing -= 1
        if answer := self._votes.add(text, weight):
            self._counts[answer] += 1

    @property
    def decided(self) -> bool:
        """Whether the search may stop.

        Answers agree if their forms are equal. Forms that may yet turn out equal count separately,
        so the search stops late rather than early.
        """
        if self._agree is not None and max(self._counts.values(), default=0) >= self._agree:
            return True
        return self._by_vote and self._vote_is_decided

    @property
    def _vote_is_decided(self) -> bool:
        """Whether the leader's lead over the runner-up is more than the missing ones can add."""
        first, second = self._votes.first_and_second
        return first - second > self._missing * MAX_WEIGHT + ROUNDING
