"""The tables that are printed: every case of every system, and theirs over ours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from scripts.bench.common import table_of

from .turns import Measured, by_system, ratios, spread_of

SEARCH = (("wall_s", "wall s", 1), ("best", "best, %", 100), ("weighted", "weighted, %", 100))
SERVING = (
    ("tokens_s", "tokens/s", 1),
    ("ttft", "TTFT ms p50", 1),
    ("ttft_p99", "TTFT ms p99", 1),
    ("whole_p99", "whole ms p99", 1),
    ("failed", "failed", 1),
)
Columns = Sequence[tuple[str, str, int]]
"""The name of a value, its heading, and what it is multiplied by."""


def rows_of(
    measured: Sequence[Measured], columns: Columns, ours: str, compared: str
) -> list[list[str]]:
    """One row for each case of each system: its values, and `compared` over ours of the round."""
    found = by_system(measured)
    rows = []
    for (case, system), rounds in found.items():
        cells = [case, system, str(len(rounds))]
        for name, _, factor in columns:
            spread = spread_of([factor * each.values[name] for each in rounds])
            digits = 1 if abs(spread.median) < 1000 and name != "failed" else 0
            cells.append(spread.shown(digits))
        reference = found.get((case, ours))
        ratio = None
        if reference is not None and system != ours:
            ratio = ratios(rounds, reference, compared)
        rows.append([*cells, ratio.shown(2) if ratio else ""])
    return rows


def headings(columns: Columns, compared: str) -> list[str]:
    """What stands above the rows."""
    texts = {name: text for name, text, _ in columns}
    return ["case", "system", "rounds", *texts.values(), f"{texts[compared]} / ours"]


def table(
    title: str, measured: Sequence[Measured], columns: Columns, ours: str, compared: str
) -> Table:
    """The table of one part, to be printed."""
    printed = table_of(title, *headings(columns, compared), left={"case", "system"})
    for row in rows_of(measured, columns, ours, compared):
        printed.add_row(*row)
    return printed


def markdown(measured: Sequence[Measured], columns: Columns, ours: str, compared: str) -> str:
    """The same table for a page of documentation."""
    first = headings(columns, compared)
    lines = [first, ["---"] * len(first), *rows_of(measured, columns, ours, compared)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
