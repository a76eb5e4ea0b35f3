"""The figures of several runs: accuracy against costs, over n and thinking; schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import altair as alt

from tts.runs.compare import (
    Comparison,
    NoCurve,
    Row,
    asked_alike,
    best_rival,
    joined_curves,
    label,
    pooled,
    varying,
)
from tts.runs.statistics import best_within, interval, pareto_front, share_with_interval

from .charts import (
    ACCURACY,
    COLOURS,
    Figure,
    Spec,
    TableRow,
    bars,
    chart,
    doubling_axis,
    flops,
    legend,
    line,
    listed,
    log_axis,
    measured,
    number,
    percent,
    spec,
    tint,
)
from .pairs import pairs_figures
from .results import budget_in_words, results_figures

CostUnit = Literal["tokens", "compute", "seconds"]
_TITLES: dict[CostUnit, str] = {
    "tokens": "generated tokens of both models per problem",
    "compute": "FLOPs per problem",
    "seconds": "seconds per problem (wall time over problems)",
}
_FORMS: dict[CostUnit, str] = {"tokens": ",~r", "compute": "~s", "seconds": ",~r"}
_COST_NOTES: dict[CostUnit, list[str]] = {
    "tokens": ["Prompts are left out, so a verifier that writes nothing seems free here."],
    "compute": ["2 FLOPs for each parameter and token of both models, each prefix once."],
    "seconds": ["Seconds are the wall time of one run each."],
}


def cost_figure(
    rows: Mapping[str, Sequence[Row]], cost: CostUnit, notes: Sequence[str]
) -> Figure | None:
    """Accuracy against the cost of a problem, a line for each name, with the front.

    `rows` are those of each name, seeds together (`pooled`). Those whose cost is not known are left
    out, which a note says.
    """
    unknown = [name for name, of_name in rows.items() if not all(_knows(r, cost) for r in of_name)]
    rows = {name: of_name for name, of_name in rows.items() if name not in unknown}
    places = sorted(
        ((name, row) for name, of_name in rows.items() for row in of_name),
        key=lambda each: cost_of(each[1], cost),
    )
    if not places:
        return None
    ranked = [row for _, row in places]
    front = certain_front(ranked, cost)
    table: list[TableRow] = []
    for name, row in places:
        low, high = row.interval_95 or (None, None)
        best = best_rival(row, ranked)
        gain = row.gain_over(best) if best else None
        table.append(
            {
                "strategy": name,
                "n": row.n,
                "budget": budget_in_words(row.budget) or None,
                cost: round(cost_of(row, cost), 4),
                "baseline": bool(row.name),
                "accuracy": round(row.accuracy or 0.0, 4),
                "low": low,
                "high": high,
                "to the best": round(gain.mean, 4) if gain else None,
                "from": round(gain.low, 4) if gain else None,
                "up to": round(gain.high, 4) if gain else None,
                "on the front": any(row is each for each in front),
            }
        )
    unused = {name for name in ("budget", "baseline") if not any(row[name] for row in table)}
    table = [{k: v for k, v in row.items() if k not in unused} for row in table]
    called = {id(row): f"{name}, n={row.n}" for name, row in places}
    steps = "; ".join(
        f"{called[id(row)]} ({_share_of(row)}, {_cost_words(cost_of(row, cost), cost)} per problem)"
        for row in front
    )
    what = (
        "Cheapest first, each significantly more accurate than the one before"
        if len(front) > 1
        else "Nothing is significantly more accurate than the cheapest"
    )
    return Figure(
        f"accuracy-against-{cost}",
        f"Accuracy against {cost}",
        f"{what}: {steps}.{_within(rows, cost)}",
        table,
        _cost_spec(
            cost,
            [cost_of(row, cost) for row in ranked],
            list(rows),
            baseline="baseline" not in unused,
        ),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems); large marks are on the front. "
            "Differences to the best at the same budget are paired: of the same problems.",
            *_COST_NOTES[cost],
            *([f"Not known, and left out: {', '.join(unknown)}."] if unknown else []),
            *notes,
        ],
    )


def _cost_spec(
    cost: CostUnit, costs: Sequence[float], names: Sequence[str], *, baseline: bool
) -> Spec:
    """The chart; a dashed line is as high as the baseline, if there is one."""
    marks = {
        "shape": alt.Shape("strategy:N", title=None, scale=_shapes(names), legend=legend(names)),
        "size": alt.condition("datum['on the front']", alt.value(120), alt.value(40)),
    }
    points = measured(
        alt.X(f"{cost}:Q", title=_TITLES[cost], **log_axis(costs, _FORMS[cost])),
        "accuracy",
        color=tint("strategy", names),
        marks=marks,
        **ACCURACY,
    )
    if baseline:
        level = chart().transform_filter("datum.baseline").mark_rule(strokeDash=[6, 4])
        colours = tint("strategy", names)
        points = alt.layer(level.encode(y=alt.Y("accuracy:Q", **ACCURACY), color=colours), points)
    return spec(points, 300)


def certain_front(rows: Sequence[Row], cost: CostUnit) -> list[Row]:
    """The rows on the Pareto front that the problems tell apart, by rising cost.

    It begins with the cheapest one; a dearer one joins where it is right more often than the last
    one beyond the noise: by the interval of the difference on the same problems.
    """
    front: list[Row] = []
    for place in pareto_front([(cost_of(row, cost), row.accuracy or 0.0) for row in rows]):
        gain = rows[place].gain_over(front[-1]) if front else None
        if not front or (gain is not None and gain.low > 0):
            front.append(rows[place])
    return front


def _within(rows: Mapping[str, Sequence[Row]], cost: CostUnit) -> str:
    """The best row of each name within the least cost at which each has one; nothing is
    interpolated.
    """
    if len(rows) < 2:
        return ""
    points = {
        name: [(cost_of(row, cost), row.accuracy or 0.0) for row in of_name]
        for name, of_name in rows.items()
    }
    least = max(min(point[0] for point in of_name) for of_name in points.values())
    within = {
        name: rows[name][place]
        for name, of_name in points.items()
        if (place := best_within(of_name, least)) is not None
    }
    ranked = sorted(within.items(), key=lambda reached: -(reached[1].accuracy or 0.0))
    shares = ", ".join(f"{name} {_share_of(row)}" for name, row in ranked)
    return f" Within {_cost_words(least, cost)} per problem: {shares}."


def _share_of(row: Row) -> str:
    """`40.0% [22.1, 61.3]`, with the 95% interval."""
    low, high = row.interval_95 or (0.0, 1.0)
    return f"{percent(row.accuracy)} {interval(100 * low, 100 * high)}"


def cost_of(row: Row, cost: CostUnit) -> float:
    """The cost of a solved problem; never 0 when rounded, which no logarithmic axis shows."""
    costs: dict[CostUnit, float] = {
        "tokens": row.tokens_per_problem,
        "compute": row.compute_per_problem or 0.0,
        "seconds": row.wall_s_per_problem,
    }
    return max(costs[cost], 1e-4)


def _knows(row: Row, cost: CostUnit) -> bool:
    return cost != "compute" or row.compute_per_problem is not None


def _cost_words(value: float, cost: CostUnit) -> str:
    return flops(value) if cost == "compute" else f"{number(value)} {cost}"


def _shapes(names: Sequence[str]) -> alt.Scale:
    """A shape for each of the six colours' rounds, so that no two names look the same."""
    shapes = ["circle", "square", "triangle-up", "diamond", "cross"]
    return alt.Scale(
        domain=list(names),
        range=[shapes[place // len(COLOURS) % len(shapes)] for place in range(len(names))],
    )


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
