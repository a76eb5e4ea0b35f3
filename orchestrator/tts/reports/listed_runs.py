"""The table of `tts runs list`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.runs.listing import ListedRun, State

from .sheet import Sheet

_STYLES: dict[State, str] = {
    "finished": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "damaged": "red",
}


def listed_table(runs: Sequence[ListedRun]) -> RenderableType:
    """A row for each run, and a line for each that is damaged."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("run", "began", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("done", "accuracy", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("strategy", "verifier", "deployment", "dataset"):
        table.add_column(heading, no_wrap=True)
    for run in runs:
        dataset = run.dataset and Path(run.dataset).name
        table.add_row(
            Text(run.name),
            _local(run.began),
            Text(run.state, _STYLES[run.state]),
            "-" if run.problems is None else f"{run.problems_done:,} of {run.problems:,}",
            "-" if run.accuracy is None else f"{100 * run.accuracy:.1f}%",
            "-" if run.n is None else str(run.n),
            *(Text(said or "-") for said in (run.strategy, run.verifier, run.deployment, dataset)),
        )
    damages = [Text(f"{run.name}: {run.damage}", "red") for run in runs if run.damage]
    return Group(Sheet(table, keys=1), *damages)


def _local(time: str | None) -> str:
    if time is None:
        return "-"
    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M}"
