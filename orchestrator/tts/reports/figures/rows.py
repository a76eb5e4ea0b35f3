"""The figures of runs side by side: accuracy against costs, over n and thinking; schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from tts.runs.compare import (
    NoCurve,
    Row,
    asked_alike,
    joined_curves,
    label,
    pooled,
    varying,
)
from tts.runs.statistics import share_with_interval

from .charts import (
    ACCURACY,
    COLOURS,
    bars,
    doubling_axis,
    legend,
    line,
    listed,
    number,
    percent,
    spec,
    tint,
)
from .costs import cost_figure
from .figure import Figure, TableRow

_WHY_NO_CURVE: dict[NoCurve, str] = {
    "dependent": "at its own n only, since no part of its search is a smaller search",
    "limits": "at its own n only, since its limits are those of whole problems",
}


def rows_figures(rows: Sequence[Row], notes: Sequence[str]) -> list[Figure]:
    """The figures of rows with accuracies; `notes` are added to those of each.

    Only rows that were asked the same can be compared: the others are left out, which a note says.
    """
    rows = [row for row in rows if row.accuracy is not None and row.problems]
    if not rows:
        return []
    alike = max(asked_alike(rows), key=len)
    if others := len(rows) - len(alike):
        notes = [*notes, f"{others} of {len(rows)} were asked other questions, and left out."]
    together = pooled(alike)
    figures = (
        cost_figure(together, "tokens", notes),
        cost_figure(together, "compute", notes),
        cost_figure(together, "seconds", notes),
        over_n(alike, notes),
        over_thinking(alike, notes),
        schedules(alike, notes),
    )
    return [figure for figure in figures if figure]


def over_n(rows: Sequence[Row], notes: Sequence[str]) -> Figure | None:
    """Accuracy over n, a line for each strategy; None where no strategy has two points."""
    also = varying(rows)
    names = [label(row, also) for row in rows]
    curves = joined_curves(names, rows)
    if all(len(points) < 2 for points in curves.values()):
        return None
    table: list[TableRow] = [
        {"strategy": name, "n": n, "accuracy": point.accuracy, "pass@n": point.pass_at_n}
        for name, points in curves.items()
        for n, point in sorted(points.items())
    ]
    lines = _accuracy_lines("n", "completions (n)", list(curves))
    top, having = _highest(table)
    best = [f"{row['strategy']} at n={row['n']}" for row in having]
    problems = rows[names.index(str(having[0]["strategy"]))].problems
    for reason, why in _WHY_NO_CURVE.items():
        dependent = [row.strategy for row in rows if row.no_curve == reason and row.n > 1]
        if dependent:
            notes = [*notes, f"{', '.join(dict.fromkeys(dependent))}: {why}."]
    return Figure(
        "accuracy-over-n",
        "Accuracy over n",
        f"The highest accuracy is {share_with_interval(top, problems)}: {listed(best)}.",
        table,
        spec(lines, 280),
        notes=[
            "Below a run's own n: averages over its disjoint blocks of chains or whole subtrees.",
            *notes,
        ],
    )


def _highest(table: Sequence[TableRow]) -> tuple[float, list[TableRow]]:
    """The highest accuracy, and all rows that have it."""
    top = max(float(row["accuracy"] or 0.0) for row in table)
    return top, [row for row in table if float(row["accuracy"] or 0.0) == top]


def _accuracy_lines(field: str, title: str, names: list[str]) -> alt.Chart:
    """Accuracy over a number that doubles, a line for each strategy."""
    return line(
        doubling_axis(field, title),
        alt.Y("accuracy:Q", **ACCURACY),
        color=tint("strategy", names),
        strokeDash=_dashed(names),
    )


def over_thinking(rows: Sequence[Row], notes: Sequence[str]) -> Figure | None:
    """Accuracy over the budget of thinking, a line for each strategy; None without two budgets."""
    by_budget: dict[int, list[Row]] = {}
    for row in rows:
        others = dict(row.differs)
        if (budget := others.pop("thinking_budget", None)) is not None:
            by_budget.setdefault(budget, []).append(replace(row, differs=others))
    curves: dict[str, dict[int, Row]] = {}
    for budget, alike in by_budget.items():
        for name, same in pooled(alike).items():
            for row in same:
                curves.setdefault(f"{name}, n={row.n}", {})[budget] = row
    if all(len(points) < 2 for points in curves.values()):
        return None
    table: list[TableRow] = [
        {
            "strategy": name,
            "budget": budget,
            "accuracy": row.accuracy,
            "tokens": round(row.tokens_per_problem),
        }
        for name, points in curves.items()
        for budget, row in sorted(points.items())
    ]
    lines = _accuracy_lines("budget", "most tokens of thinking", list(curves))
    top, having = _highest(table)
    best = [f"{row['strategy']} with at most {row['budget']:,}" for row in having]
    return Figure(
        "accuracy-over-thinking",
        "Accuracy over the budget of thinking",
        f"The highest accuracy is {percent(top)}: {listed(best)} tokens of thinking in a chain.",
        table,
        spec(lines, 280),
        notes=notes,
    )


def schedules(rows: Sequence[Row], notes: Sequence[str]) -> Figure | None:
    """How long the same searches took under each schedule; None where only one was used."""
    searches: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        key = (label(row, ()), row.n, row.summary.search)
        searches.setdefault(key, {}).setdefault(row.summary.schedule, row)
    several = [by_schedule for by_schedule in searches.values() if len(by_schedule) > 1]
    if not several:
        return None
    also = [name for name in varying(rows) if name != "schedule"]
    table: list[TableRow] = []
    for by_schedule in several:
        first = next(iter(by_schedule.values()))
        slowest = max(row.wall_s for row in by_schedule.values())
        table += [
            {
                "search": f"{label(first, also)}, n={first.n}",
                "schedule": schedule,
                "seconds": round(row.wall_s, 3),
                "problems": row.problems,
                "speed-up": round(slowest / row.wall_s, 3) if row.wall_s else None,
                "same answers": row.right == first.right,
            }
            for schedule, row in by_schedule.items()
        ]
    names = list(dict.fromkeys(str(row["schedule"]) for row in table))
    best = max(table, key=lambda row: float(row["speed-up"] or 0.0))
    other = sum(not row["same answers"] for row in table)
    answers = (
        f"In {other} runs other problems are right than under the first schedule of the search."
        if other
        else "The same problems are right under each schedule of a search."
    )
    chart = bars(
        alt.X("seconds:Q", title="seconds of the whole run"),
        "search",
        None,
        yOffset=alt.YOffset("schedule:N", sort=names),
        color=tint("schedule", names),
    )
    return Figure(
        "schedules",
        "Schedules side by side",
        f"The largest difference is {number(float(best['speed-up'] or 0.0))} times: "
        f"{best['search']} under {best['schedule']}, against the slowest schedule of the same "
        f"search. {answers}",
        table,
        spec(chart, 28 * len(table)),
        notes=["One run each, without an interval.", *notes],
    )


def _dashed(names: Sequence[str]) -> alt.StrokeDash:
    """Solid for the first six lines, then dashed in the same colours."""
    patterns = [[1, 0], [6, 3], [2, 2]]
    dashes = [patterns[place // len(COLOURS) % len(patterns)] for place in range(len(names))]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash("strategy:N", title=None, legend=legend(names), scale=scale)
