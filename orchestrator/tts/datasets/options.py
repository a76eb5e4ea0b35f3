"""How a dataset is read, and what is taken of it: a draw by level, or the shard of one machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeVar, get_args

from tts.base.choices import AnswerKind
from tts.base.errors import DatasetError
from tts.problem import Problem

from .rows import ProblemField, check_columns

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The part `number` of `count`, counted from 1: problems number, number + count, ..."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise DatasetError(
                f"Shard {self} does not exist.", hint="Give it as i/N, with i from 1 to N."
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard that is written `i/N`; raises DatasetError."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if not match:
            raise DatasetError(
                f"{text!r:.100} is no shard.", hint="Give it as i/N, such as 1/8: the first of 8."
            )
        return cls(int(match[1]), int(match[2]))

    def of(self, items: Sequence[T]) -> list[T]:
        """The shard's part of all items, in their order; sizes of parts differ by one at most."""
        return list(items[self.number - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def interleaved(parts: Sequence[Sequence[T]]) -> list[T] | None:
    """All items from the parts of shards 1 to N, in their first order; None if they do not fit."""
    total = sum(map(len, parts))
    sizes = [len(range(number, total, len(parts))) for number in range(len(parts))]
    if [len(part) for part in parts] != sizes:
        return None
    return [parts[place % len(parts)][place // len(parts)] for place in range(total)]


@dataclass(frozen=True)
class DatasetOptions:
    """A user's options for a dataset besides its name and a limit. Raises DatasetError."""

    seed: int = 0
    """Seed of generated problems and of draws."""
    columns: Mapping[ProblemField, str] = field(default_factory=dict)
    """The columns that the user named, by their content."""
    answers: AnswerKind | None = None
    """How a file's answers are written; None: as they are, or after GSM8K's `####`."""
    per_level: int | None = None
    """How many problems to draw of each level; None: all problems, in their order."""
    start: int | None = None
    """The first problem that is taken, counted from 0; None: the first one there is."""
    shard: Shard | None = None
    """The part of the chosen problems; None: all of them."""

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if self.answers is not None and self.answers not in get_args(AnswerKind):
            raise DatasetError(
                f"Answers are read as {', '.join(get_args(AnswerKind))}, not as "
                f"{self.answers!r:.100}."
            )
        if self.per_level is not None and self.per_level < 1:
            raise DatasetError(f"{self.per_level} problems per level; it must be at least 1.")
        if self.start is not None and self.start < 0:
            raise DatasetError(f"The first problem is {self.start}; they are counted from 0.")


def draw_by_level(problems: Sequence[Problem], per_level: int, seed: int) -> list[Problem]:
    """`per_level` problems of each level, the levels taking turns in ascending order.

    The draw is uniform, and depends on ids and seed alone: neither on the order of `problems` nor
    on Python's random numbers. With the same seed a smaller draw is part of a larger one. Raises
    DatasetError for a problem without a level, and for a level with too few.
    """
    levels: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.level is None:
            raise DatasetError(
                f"Problem {problem.id!r:.200} has no level, so none can be drawn by level.",
                hint="Name the column that has it: --columns level=difficulty.",
            )
        levels.setdefault(str(problem.level), []).append(problem)
    draws = []
    for level in sorted(levels, key=_ascending):
        of_level = levels[level]
        if len(of_level) < per_level:
            raise DatasetError(
                f"Level {level} has {len(of_level):,} problems, fewer than {per_level:,}."
            )
        draws.append(sorted(of_level, key=lambda problem: _lot(seed, problem.id))[:per_level])
    turns = zip_longest(*draws)
    return [problem for turn in turns for problem in turn if problem]


def _ascending(level: str) -> tuple[bool, float, str]:
    """A sort key: numbers by value, before texts."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def _lot(seed: int, problem: str) -> bytes:
    return hashlib.sha256(f"tts-draw/{seed}/{problem}".encode()).digest()
