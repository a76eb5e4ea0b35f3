"""The figures of several runs: their tables, each run against the first, then side by side."""

from __future__ import annotations

from tts.runs.compare import (
    Comparison,
)

from .figure import Figure
from .pairs import pairs_figures
from .results import results_figures
from .rows import rows_figures

_FIRST = ("settings", "accuracy-differences", "cost-differences")
"""Figures of pairs that stand at once below the tables."""


def comparison_figures(comparison: Comparison) -> list[Figure]:
    """The figures of a comparison: its tables and the paired differences, then the others; of
    rows without references, and of pairs, as far as there are any.
    """
    unfinished = [name for names in comparison.unfinished.values() for name in names]
    notes = [f"Not finished, and left out: {', '.join(unfinished)}."] if unfinished else []
    paired = pairs_figures(comparison)
    tables = [figure for figure in paired if figure.name in _FIRST]
    return [
        *results_figures(comparison.rows),
        *tables,
        *rows_figures(comparison.rows, notes),
        *(figure for figure in paired if figure not in tables),
    ]
