"""The type of a figure; pages, exports and downloads take nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | int | float | bool | None
TableRow = dict[str, Cell]
Spec = dict[str, Any]
"""A Vega-Lite specification, as JSON would have it."""
Origin = Literal["measured", "modelled", "simulated"]
"""Measured in the run; the run's own requests put through a model of a part, such as a cache of
another size; or simulated engines."""

DATA = "rows"
"""The name by which a chart takes its figure's rows: `alt.Chart(alt.NamedData(DATA))`."""


@dataclass(frozen=True)
class Figure:
    """One figure.

    `name` is its anchor and file name (lower case, hyphens); `reading` says in a sentence or two
    what the reader sees, with the numbers that matter; `rows` are the table behind it, which is
    also its download; `chart` draws them, without data of its own. Without a chart it is a table.
    """

    name: str
    title: str
    reading: str
    rows: Sequence[TableRow]
    chart: Spec | None = None
    origin: Origin = "measured"
    notes: Sequence[str] = field(default=())
    """What limits it: thinned data, engines that did not report, problems left out."""

    @property
    def columns(self) -> list[str]:
        """The names of all cells of its rows, in the order in which they first come."""
        return list(dict.fromkeys(name for row in self.rows for name in row))
