"""Groups of equal answers, for votes and weighted votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .canonical import canonical
from .verdict import Reason, Verdict


class Equality(Protocol):
    """Whatever says whether two answers are equal: `Grader`, or a function of the user's own."""

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """Whether `prediction` answers `reference`."""


async def group_answers(
    answers: Sequence[str | None], grader: Equality, form: Callable[[str], str] = canonical
) -> list[int]:
    """Group index per answer: equal answers share one, groups count from 0 as they appear.

    The first answer of a group represents it, and later ones join the first group whose
    representative they equal: the result follows from the order of `answers` alone. None (and
    blank) is no answer and gets -1. Answers of one `form` are equal, and compared once.
    """
    representatives: list[str] = []
    group_of_form: dict[str, int] = {}
    groups = []
    for answer in answers:
        if answer is None or not answer.strip():
            groups.append(-1)
            continue
        known = form(answer)
        if known not in group_of_form:
            group_of_form[known] = await _find_group(answer, representatives, grader)
        groups.append(group_of_form[known])
    return groups


async def _find_group(answer: str, representatives: list[str], grader: Equality) -> int:
    """Index of the group that `answer` belongs to, which may be a new one."""
    for group, representative in enumerate(representatives):
        verdict = await grader.equal(answer, representative)
        # whether "1,22" has a decimal comma only the author of a reference is taken to know
        if verdict.equal and verdict.reason is not Reason.DECIMAL_COMMA:
            return group
    representatives.append(answer)
    return len(representatives) - 1
