"""Spots numbers too large to evaluate, so that the commonest of them cost no worker.

A screen, not a guard: it reads digits and knows no algebra. What it misses meets the worker's
deadline and memory cap.
"""

from __future__ import annotations

import math
import re

MAX_DIGITS = 100_000  # sympy still handles numbers of so many digits in well under a second
_MAX_MAGNITUDE = math.log10(MAX_DIGITS)

# No two neighbours of these patterns match the same character, so none of them backtracks for long.
_POWER = r"\s*(?:\^|\*\*)[\s{(]*"
_TOWER = re.compile(rf"(?<!\d)\d+(?:{_POWER}\d+)+")
_CLIMB = re.compile(_POWER)
_BIG_EXPONENT = re.compile(rf"[)\]]{_POWER}-?\d{{6}}")  # the base is a group, such as (x+1)
_FACTORIAL = re.compile(r"(?<!\d)(?:\d{6,}[\s)}]*!|(?:\d{2,}|[89])!\s*\)+\s*!)")
_BINOMIAL = re.compile(r"binom\s*\{\s*\d{6,}\s*\}\s*\{\s*\d{6}")


def is_too_costly(answer: str) -> bool:
    """True if `answer` spells a power, factorial or binomial with far too many digits."""
    return (
        any(_is_too_high(tower[0]) for tower in _TOWER.finditer(answer))
        or _BIG_EXPONENT.search(answer) is not None
        or _FACTORIAL.search(answer) is not None
        or _BINOMIAL.search(answer) is not None
    )


def _is_too_high(tower: str) -> bool:
    """Whether `a^b^c...` has too many digits; computes no exponent above the limit."""
    base, *levels = _CLIMB.split(tower)
    exponent = 1
    for level in reversed(levels):
        if len(level) > _MAX_MAGNITUDE + 1:
            return True
        if exponent * math.log10(max(int(level), 1)) > _MAX_MAGNITUDE:
            return True
        exponent = int(level) ** exponent
    return len(base) * exponent > MAX_DIGITS
