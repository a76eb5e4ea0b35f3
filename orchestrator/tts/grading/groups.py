"""Groups of equal answers among those of one problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from .canonical import canonical
from .verdict import Reason, Verdict

_PERCENT_SIGN = re.compile(r"\s*\\?%(?=\W*\Z)")


class Equality(Protocol):
    """Whatever says whether two answers are equal: `Grader`, or a function of the user's own."""

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """Whether `prediction` answers `reference`."""


async def group_answers(
    answers: Sequence[str | None], grader: Equality, form: Callable[[str], str] = canonical
) -> list[int]:
    """Group index per answer: equal answers share one, groups count from 0 as they appear.

    Which answers share a group does not depend on their order: answers of one `form` are equal,
    and the forms join the first group whose representative they equal, the longest form first, for
    it says most. Those with a percent sign come last, and all are read alike: without the sign if
    one of them equals another answer so, else as hundredths. None and blanks are no answers and get
    -1.
    """
    texts: dict[str, str] = {}
    for answer in answers:
        if answer is not None and answer.strip():
            key = form(answer)
            texts[key] = min(answer, texts.get(key, answer), key=lambda text: (len(text), text))
    order = sorted(texts, key=lambda key: (-len(texts[key]), texts[key]))
    representatives: list[str] = []

    async def find(answer: str) -> int | None:
        for group, representative in enumerate(representatives):
            verdict = await grader.equal(answer, representative)
            # whether "1,22" has a decimal comma only the author of a reference is taken to know
            if verdict.equal and verdict.reason is not Reason.DECIMAL_COMMA:
                return group
        return None

    group_of: dict[str, int] = {}

    async def join(key: str, answer: str) -> None:
        group = await find(answer)
        if group is None:
            group = len(representatives)
            representatives.append(answer)
        group_of[key] = group

    for key in order:
        if not _PERCENT_SIGN.search(texts[key]):
            await join(key, texts[key])
    numbers = {key: _PERCENT_SIGN.sub("", texts[key]) for key in order if key not in group_of}
    for number in numbers.values():
        if await find(number) is not None:
            texts |= numbers
            break
    for key in numbers:
        await join(key, texts[key])
    index: dict[int, int] = {}
    return [
        index.setdefault(group_of[form(answer)], len(index)) if answer and answer.strip() else -1
        for answer in answers
    ]
