"""Intervals of shares."""

from __future__ import annotations

import math

Z_95 = 1.96


def wilson(share: float, count: int) -> tuple[float, float]:
    """The Wilson 95% interval of a share of `count`, which is sane at 0 and 1 too.

    For an average of values within [0, 1] that are not all 0 or 1 it is too wide, never too
    narrow: no such values vary more than zeros and ones of the same average.
    """
    shrink = 1 + Z_95**2 / count
    centre = (share + Z_95**2 / (2 * count)) / shrink
    half = half_width(share, count)
    return max(0.0, centre - half), min(1.0, centre + half)


def half_width(share: float, count: int) -> float:
    """Half the width of the Wilson 95% interval."""
    shrink = 1 + Z_95**2 / count
    return Z_95 / shrink * math.sqrt(share * (1 - share) / count + (Z_95 / (2 * count)) ** 2)
