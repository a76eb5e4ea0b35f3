"""One question to solve."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """`answer` is the reference, None if there is none; `level` groups results in reports."""

    id: str
    question: str
    answer: str | None = None
    level: int | str | None = None
