"""Runs compared problem by problem, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.runs.compare import PairedRun, Setting

from .sheet import Sheet

MOST_IDS = 20
"""How many problems are named in a line; the others are counted."""


def settings_table(settings: Sequence[Setting], names: Sequence[str]) -> RenderableType:
    """What the runs were asked for differently, a row each."""
    if not settings:
        return Text("The runs were asked for the same.")
    table = _table("what differs", *names)
    for setting in settings:
        table.add_row(setting.name, *map(setting_cell, setting.values))
    return Sheet(table)


def setting_cell(value: Any) -> str:
    """A setting as run.json has it; a dash where a run has none. Long ones are cut."""
    text = "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def paired_report(pair: PairedRun, baseline: str, other: str) -> RenderableType:
    """A run against the baseline: accuracy, costs, and the problems on which they disagree."""
    table = _table("mean per problem", baseline, other, "difference (95%)")
    if pair.gain is not None and pair.gain_95 is not None:
        low, high = pair.gain_95
        table.add_row(
            "accuracy",
            *(f"{100 * right / pair.judged:.1f}%" for right in pair.right),
            f"{100 * pair.gain:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})",
        )
    for cost in pair.costs:
        low, high = cost.difference.interval_95
        digits = 2 if cost.name == "seconds" else 0
        table.add_row(
            cost.name,
            f"{cost.baseline:,.{digits}f}",
            f"{cost.other:,.{digits}f}",
            f"{cost.difference.mean:+,.{digits}f} ({low:+,.{digits}f} to {high:+,.{digits}f})",
        )
    walls = (pair.baseline.measures.wall_s, pair.other.measures.wall_s)
    table.add_row("wall s of the run", *(f"{wall:,.1f}" for wall in walls), _ratio(*walls))
    lines = [f"\n{other} against {baseline}, on {_problems(pair)}\n"]
    return Group(
        *(Text(line, style="bold") for line in lines),
        Sheet(table),
        *(Text(line) for line in _disagreements(pair, baseline, other)),
    )


def _disagreements(pair: PairedRun, baseline: str, other: str) -> list[str]:
    if not pair.judged:
        return ["The problems have no reference answers, so there are no accuracies."]
    lines = [
        f"McNemar's exact test: p = {pair.p_value:.3g}; right in both: "
        f"{pair.right[0] - len(pair.only_baseline):,}, in neither: "
        f"{pair.judged - pair.right[0] - len(pair.only_other):,}"
    ]
    for name, ids in ((baseline, pair.only_baseline), (other, pair.only_other)):
        more = f" and {len(ids) - MOST_IDS:,} more" if len(ids) > MOST_IDS else ""
        listed = f": {', '.join(ids[:MOST_IDS])}{more}" if ids else ""
        lines.append(f"right in {name} only, {len(ids):,}{listed}")
    return lines


def _problems(pair: PairedRun) -> str:
    solved = [len(run.measures.problems) for run in (pair.baseline, pair.other)]
    count = len(pair.common)
    words = "the problem" if count == 1 else f"the {count:,} problems"
    if max(solved) == count:
        return f"{words} of both"
    return f"{words} that both have solved (of {solved[0]:,} and {solved[1]:,})"


def _ratio(baseline: float, other: float) -> str:
    return f"{other / baseline:.2f} times" if baseline else ""


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", overflow="fold")
    return table
