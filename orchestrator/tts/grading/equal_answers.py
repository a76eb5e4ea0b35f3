"""Answers into groups of equals, for votes and weighted votes."""

from __future__ import annotations

from collections.abc import Sequence

from .canonical import canonical
from .grader import Grader


async def group_answers(answers: Sequence[str | None], grader: Grader) -> list[int]:
    """Group index per answer: equal answers share one, groups count from 0 as they appear.

    The first answer of a group represents it, and later ones join the first group whose
    representative they equal: the result follows from the order of `answers` alone. None (and
    blank) is no answer and gets -1. Answers of one canonical form are compared once.
    """
    representatives: list[str] = []
    group_of_form: dict[str, int] = {}
    groups = []
    for answer in answers:
        if answer is None or not answer.strip():
            groups.append(-1)
            continue
        form = canonical(answer)
        if form not in group_of_form:
            group_of_form[form] = await _find_group(answer, representatives, grader)
        groups.append(group_of_form[form])
    return groups


async def _find_group(answer: str, representatives: list[str], grader: Grader) -> int:
    """Index of the group that `answer` belongs to, which may be a new one."""
    for group, representative in enumerate(representatives):
        if (await grader.equal(answer, representative)).equal:
            return group
    representatives.append(answer)
    return len(representatives) - 1
