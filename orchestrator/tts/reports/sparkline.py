"""A line of bars, one character each."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """One character for each value, from empty (a space) to `top` (default: the largest value)."""
    top = max(values, default=0.0) if top is None else top
    if top <= 0:
        return " " * len(values)
    return "".join(
        _BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] if value > 0 else " "
        for value in values
    )
