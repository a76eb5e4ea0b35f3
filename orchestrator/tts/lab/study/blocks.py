"""Cells compared over rounds: a randomised complete block design, on a logarithmic scale. Pure.

Every cell runs once in each round, on the round's own problems. A round's difficulty, and how fast
the machine was during it, affect all of its cells alike and cancel. What is left over is noise,
whose size is estimated from all cells together: from few rounds of many cells as well as from many
rounds of few. (R. A. Fisher, The Design of Experiments, 1935; any textbook has the formulas as
the two-way analysis of variance without replication.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t with 1, 2, ... degrees of freedom: the 97.5% quantile."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times another cell's value a cell's is, with a 95% interval."""

    value: float
    low: float | None
    """None from a single round, which says nothing of noise; `high` likewise."""
    high: float | None

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out 1; not without an interval."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def ratios(values: Mapping[str, Sequence[float]], base: str) -> dict[str, Ratio]:
    """Each cell's values over those of the cell `base`.

    `values` are positive, of each cell in the order of the rounds. With c cells and r rounds,

        ratio = exp(m - m_base), interval ratio * exp(+-t s sqrt(2 / r)),
        s^2   = sum of (y - cell mean - round mean + grand mean)^2 / ((c - 1) (r - 1))

    for y the logarithms and m their mean in a cell; t has (c - 1) (r - 1) degrees of freedom.
    """
    logs = {name: [math.log(value) for value in row] for name, row in values.items()}
    means = {name: math.fsum(row) / len(row) for name, row in logs.items()}
    half = _half_width(logs, means)
    found = {}
    for name, mean in means.items():
        value = math.exp(mean - means[base])
        if name == base:
            found[name] = Ratio(1.0, 1.0, 1.0)
        elif half is None:
            found[name] = Ratio(value, None, None)
        else:
            found[name] = Ratio(value, value * math.exp(-half), value * math.exp(half))
    return found


def t_975(degrees: int) -> float:
    """The 97.5% quantile of Student's t; beyond 30 degrees of freedom to within 0.2%."""
    return _T_975[degrees - 1] if degrees <= len(_T_975) else 1.96 + 2.4 / degrees


def _half_width(logs: Mapping[str, Sequence[float]], means: Mapping[str, float]) -> float | None:
    """Of the interval of a difference of two cells' means; None without noise to be seen."""
    rows = list(logs.values())
    rounds = len(rows[0])
    degrees = (len(rows) - 1) * (rounds - 1)
    if degrees < 1:
        return None
    grand = math.fsum(means.values()) / len(means)
    of_round = [math.fsum(row[place] for row in rows) / len(rows) for place in range(rounds)]
    squares = math.fsum(
        (value - means[name] - of_round[place] + grand) ** 2
        for name, row in logs.items()
        for place, value in enumerate(row)
    )
    return t_975(degrees) * math.sqrt(squares / degrees * 2 / rounds)
