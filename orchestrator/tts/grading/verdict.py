"""What a comparison of two answers came to, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Equal, different, or not found out within the limits."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """What decided, or what kept the grader from deciding."""

    NO_ANSWER = "no answer"  # different: nothing to compare
    IDENTICAL = "identical"  # equal: the same characters
    CANONICAL = "canonical"  # equal: the same canonical form
    INTEGERS = "integers"  # different: two plain integers
    JSON = "json"  # different: a JSON answer, and one with another value
    TIMES = "times of day"  # equal or different: two times of day, such as 4:30 p.m.
    CHOICES = "choices"  # equal or different: a letter, and a choice labelled with one
    DECIMAL_COMMA = "decimal comma"  # equal: 1.22, and a reference that writes 1,22
    UNITS = "units"  # different: units that measure different things, such as 5 cm and 5 kg
    INVARIANTS = "invariants"  # different: what equal answers share differs (see sketch)
    MATH = "math-verify"  # equal or different: math-verify compared them
    TEXTS = "texts"  # different: two answers in code, by their text
    TESTS = "tests"  # equal or different: the tests of a code problem were run
    FUNCTION = "function"  # equal or different: a function of the user's own compared them

    TOO_LONG = "too long"  # undecided: longer than any answer
    TOO_COSTLY = "too costly"  # undecided: evaluating it would exhaust any worker
    TIMEOUT = "timeout"  # undecided: reading or comparing it took too much CPU time
    BUDGET = "budget"  # undecided: the problem's answers have used up its CPU time
    MEMORY = "out of memory"  # undecided: the worker's memory cap was reached
    ERROR = "error"  # undecided: math-verify raised
    BROKEN_TESTS = "broken tests"  # undecided: the published solution fails them, too
    CRASHED = "crashed"  # undecided: the worker died, twice


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its reason.

    Accuracy counts everything but `equal` as wrong; reports count `undecided` apart as well, since
    such a verdict says something about the limits and not about the answer.
    """

    outcome: Outcome
    reason: Reason

    @property
    def equal(self) -> bool:
        """True if the answers were found to be equal."""
        return self.outcome is Outcome.EQUAL

    @property
    def undecided(self) -> bool:
        """True if the grader could not find out."""
        return self.outcome is Outcome.UNDECIDED
