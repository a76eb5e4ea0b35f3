"""Small statistics that several tables need."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so many are not above; None without values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def fraction(flags: Iterable[bool | None]) -> float | None:
    """Fraction of true flags, to four digits; None counts as false. None without flags."""
    count = right = 0
    for flag in flags:
        count += 1
        right += bool(flag)
    return round(right / count, 4) if count else None


def rounded(value: float | None, digits: int) -> float | None:
    """`round` that lets None through."""
    return None if value is None else round(value, digits)
