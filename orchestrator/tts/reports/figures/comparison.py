"""The figures of several runs: accuracy against costs, over n and thinking; schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from tts.runs.compare import Comparison
from tts.runs.rows import (
    NoCurve,
    Row,
    asked_alike,
    joined_curves,
    label,
    lone_parameter,
    pooled,
    ranks,
    swept,
    varying,
)
from tts.runs.statistics import (
    SIGNIFICANT,
    best_within,
    interval,
    pareto_front,
    share_with_interval,
    wilson,
)

from .charts import (
    ACCURACY,
    COLOURS,
    Drawing,
    Figure,
    TableRow,
    bars,
    chart,
    doubling_axis,
    flops,
    legend,
    listed,
    log_axis,
    measured,
    number,
    percent,
    spec,
    tint,
)
from .pairs import pairs_figures
from .results import P_VALUES, budget_in_words, results_figures

CostUnit = Literal["tokens", "compute", "seconds"]
_TITLES: dict[CostUnit, str] = {
    "tokens": "generated tokens of both models per problem",
    "compute": "FLOPs per problem",
    "seconds": "seconds per problem (wall time over problems)",
}
_PARAMETERS = {"thinking_budget": ("the budget of thinking", "most tokens of thinking")}
"""Parameters by their names in a title and on an axis, where these are others."""
_LARGE, _SMALL = alt.value(120), alt.value(40)
_FORMS: dict[CostUnit, str] = {"tokens": ",~r", "compute": "~s", "seconds": ",~r"}
_COST_NOTES: dict[CostUnit, list[str]] = {
    "tokens": ["Prompts are left out, so a verifier that writes nothing seems free here."],
    "compute": ["2 FLOPs for each parameter and token of both models, each prefix once."],
    "seconds": ["Seconds are the wall time of one run each."],
}


def cost_figure(
    rows: Mapping[str, Sequence[Row]],
    cost: CostUnit,
    notes: Sequence[str],
    parameters: Sequence[str] = (),
) -> Figure | None:
    """Accuracy against the cost of a problem, a line for each name, with the front.

    `rows` are those of each name, seeds together (`pooled`); `parameters` differ along lines. Rows
    whose cost is not known are left out, which a note says.
    """
    unknown = [name for name, of_name in rows.items() if not all(_knows(r, cost) for r in of_name)]
    rows = {name: of_name for name, of_name in rows.items() if name not in unknown}
    places = sorted(
        ((name, row) for name, of_name in rows.items() for row in of_name),
        key=lambda each: cost_of(each[1], cost),
    )
    if not places:
        return None
    every = [row for _, row in places]
    front = significant_front(every, cost)
    table: list[TableRow] = []
    for (name, row), rank in zip(places, ranks(every), strict=True):
        low, high = row.interval_95 or (None, None)
        table.append(
            {
                "strategy": name,
                "n": row.n,
                **{parameter: row.setting(parameter) for parameter in parameters},
                "budget": budget_in_words(row.budget) or None,
                cost: round(cost_of(row, cost), 4),
                "baseline": bool(row.name),
                "accuracy": round(row.accuracy or 0.0, 4),
                "low": low,
                "high": high,
                "to the best": round(rank.gain.mean, 4) if rank else None,
                "from": round(rank.gain.low, 4) if rank else None,
                "up to": round(rank.gain.high, 4) if rank else None,
                "p (Holm)": round(rank.p_value, 5) if rank else None,
                "on the front": any(row is each for each in front),
            }
        )
    unused = {name for name in ("budget", "baseline") if not any(row[name] for row in table)}
    table = [{k: v for k, v in row.items() if k not in unused} for row in table]
    called = {id(row): point_name(name, row, parameters) for name, row in places}
    best = "; ".join(
        f"{called[id(row)]}, {_share_of(row)}, from {_cost_words(cost_of(row, cost), cost)} on"
        for row in front
    )
    alone = " Nothing that costs more is significantly more accurate." if len(front) == 1 else ""
    x = alt.X(
        f"{cost}:Q",
        title=_TITLES[cost],
        **log_axis([cost_of(row, cost) for row in every], _FORMS[cost]),
    )
    lines = _lines(x, list(rows), size=alt.condition("datum['on the front']", _LARGE, _SMALL))
    if "baseline" not in unused:
        level = chart().transform_filter("datum.baseline").mark_rule(strokeDash=[6, 4])
        colours = tint("strategy", list(rows))
        lines = alt.layer(level.encode(y=alt.Y("accuracy:Q", **ACCURACY), color=colours), lines)
    return Figure(
        f"accuracy-against-{cost}",
        f"Accuracy against {cost}",
        f"Best accuracy for each budget: {best}.{alone}",
        table,
        spec(lines, 300),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems). Large marks are the best for "
            "a budget: each is significantly more accurate than the one before (paired, corrected "
            "for how many there are).",
            *_within(rows, cost),
            *([P_VALUES] if any(row["p (Holm)"] is not None for row in table) else []),
            *_COST_NOTES[cost],
            *([f"Not known, and left out: {', '.join(unknown)}."] if unknown else []),
            *notes,
        ],
    )


def point_name(name: str, row: Row, parameters: Sequence[str]) -> str:
    """A point of a line: `dvts (n=4)`, with the values of parameters that were swept."""
    values = ", ".join([f"n={row.n}", *(f"{each}={row.setting(each)}" for each in parameters)])
    return f"{name[:-1]}, {values})" if name.endswith(")") else f"{name} ({values})"


def _lines(x: alt.X, names: Sequence[str], **marks: Any) -> Drawing:
    """Accuracy over `x`, a line with intervals for each name; `marks` are those of the points."""
    shape = alt.Shape("strategy:N", title=None, scale=_shapes(names), legend=legend(names))
    colours, points = tint("strategy", names), {"shape": shape, **marks}
    return measured(x, "accuracy", color=colours, marks=points, **ACCURACY)


def significant_front(rows: Sequence[Row], cost: CostUnit) -> list[Row]:
    """The rows on the Pareto front that the problems tell apart, by rising cost.

    It begins with the cheapest one; a dearer one joins where it is significantly more accurate than
    the last, on the same problems, corrected for how many may join (Bonferroni).
    """
    front: list[Row] = []
    places = pareto_front([(cost_of(row, cost), row.accuracy or 0.0) for row in rows])
    for place in places:
        gain = rows[place].gain_over(front[-1]) if front else None
        joins = gain and gain.mean > 0 and gain.p_value * (len(places) - 1) < SIGNIFICANT
        if not front or joins:
            front.append(rows[place])
    return front


def _within(rows: Mapping[str, Sequence[Row]], cost: CostUnit) -> list[str]:
    """The best row of each name within the least cost at which each has one; nothing is
    interpolated.
    """
    if len(rows) < 2:
        return []
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
    return [f"Within {_cost_words(least, cost)} per problem: {shares}."]


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
    parameters = lone_parameter(alike)
    together = pooled(alike, parameters)
    figures = (
        cost_figure(together, "tokens", notes, parameters),
        cost_figure(together, "compute", notes, parameters),
        cost_figure(together, "seconds", notes, parameters),
        over_n(alike, notes),
        *(over_parameter(alike, parameter, notes) for parameter in swept(alike)),
        schedules(alike, notes),
    )
    return [figure for figure in figures if figure]


def over_n(rows: Sequence[Row], notes: Sequence[str]) -> Figure | None:
    """Accuracy over n, a line for each strategy; None where no strategy has two points."""
    also = [name for name in varying(rows) if name != "seed"]
    names = [label(row, also) for row in rows]
    curves = joined_curves(names, rows)
    if all(len(points) < 2 for points in curves.values()):
        return None
    problems = {name: row.problems for name, row in zip(names, rows, strict=True)}
    table = [
        {
            "strategy": name,
            "n": n,
            **_with_interval(point.accuracy, problems[name]),
            "pass@n": point.pass_at_n,
        }
        for name, points in curves.items()
        for n, point in sorted(points.items())
    ]
    for reason, why in _WHY_NO_CURVE.items():
        dependent = [row.strategy for row in rows if row.no_curve == reason and row.n > 1]
        if dependent:
            notes = [*notes, f"{', '.join(dict.fromkeys(dependent))}: {why}."]
    return Figure(
        "accuracy-over-n",
        "Accuracy over n",
        _highest(table, "n", problems),
        table,
        spec(_lines(doubling_axis("n", "completions (n)"), list(curves)), 280),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems). Below a run's own n: averages "
            "over its disjoint blocks of chains or whole subtrees.",
            *notes,
        ],
    )


def _with_interval(accuracy: float, problems: int) -> TableRow:
    low, high = wilson(accuracy, problems)
    return {"accuracy": round(accuracy, 4), "low": round(low, 4), "high": round(high, 4)}


def _highest(table: Sequence[TableRow], column: str, problems: Mapping[str, int]) -> str:
    """The highest accuracy in words, and all points that have it."""
    top = max(float(row["accuracy"] or 0.0) for row in table)
    best = [row for row in table if row["accuracy"] == top]
    share = share_with_interval(top, problems[str(best[0]["strategy"])])
    where = listed([f"{row['strategy']} at {column}={row[column]}" for row in best])
    return f"The highest accuracy is {share}: {where}."


def over_parameter(rows: Sequence[Row], parameter: str, notes: Sequence[str]) -> Figure | None:
    """Accuracy over a parameter that was swept, a line for each strategy and n."""
    curves: dict[str, dict[float, Row]] = {}
    for name, of_name in pooled(rows, [parameter]).items():
        for row in of_name:
            if (value := row.setting(parameter)) is not None:
                curves.setdefault(point_name(name, row, ()), {})[value] = row
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    table = [
        {
            "strategy": name,
            parameter: value,
            **_with_interval(row.accuracy or 0.0, row.problems),
            "tokens": round(row.tokens_per_problem),
        }
        for name, points in curves.items()
        for value, row in sorted(points.items())
    ]
    values = [value for points in curves.values() for value in points]
    title, axis = _PARAMETERS.get(parameter, (parameter, parameter))
    x = alt.X(f"{parameter}:Q", title=axis, scale=alt.Scale(zero=False, padding=15))
    if all(value >= 1 and value == int(value) for value in values):
        x = doubling_axis(parameter, axis)
    problems = {name: next(iter(points.values())).problems for name, points in curves.items()}
    return Figure(
        f"accuracy-over-{parameter.replace('_', '-')}",
        f"Accuracy over {title}",
        _highest(table, parameter, problems),
        table,
        spec(_lines(x, list(curves)), 280),
        notes=["Vertical lines are 95% intervals (Wilson, by problems).", *notes],
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
