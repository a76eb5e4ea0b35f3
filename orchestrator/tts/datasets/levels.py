"""A draw of equally many problems of each level, by a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

from tts.build.errors import DatasetError
from tts.problem import Problem


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
    drawn = []
    for level in sorted(levels, key=_ascending):
        of_level = levels[level]
        if len(of_level) < per_level:
            raise DatasetError(
                f"Level {level} has {len(of_level):,} problems, fewer than {per_level:,}."
            )
        drawn.append(sorted(of_level, key=lambda problem: _lot(seed, problem.id))[:per_level])
    turns = zip_longest(*drawn)
    return [problem for turn in turns for problem in turn if problem]


def _ascending(level: str) -> tuple[bool, float, str]:
    """A sort key: numbers by value, before texts."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def _lot(seed: int, problem: str) -> bytes:
    return hashlib.sha256(f"tts-draw/{seed}/{problem}".encode()).digest()
