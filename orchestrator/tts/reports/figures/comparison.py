"""The figures of several runs: accuracy against costs, over n and thinking; schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Literal

from tts.runs.compare import Comparison
from tts.runs.curves import Point
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
from tts.runs.statistics import SIGNIFICANT, best_within, pareto_front, share_with_interval, wilson

from .charts import (
    ACCURACY,
    Figure,
    Spec,
    TableRow,
    bars,
    count_of,
    doubling_axis,
    field,
    flops,
    layers,
    legend,
    listed,
    log_axis,
    mark,
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
    "seconds": "wall seconds per problem (wall time over problems)",
}
_COLUMNS: dict[CostUnit, str] = {
    "tokens": "tokens",
    "compute": "compute",
    "seconds": "wall seconds",
}
"""Costs as columns and in words; `seconds` of a table are from a problem's start to its end."""
_PARAMETERS = {"thinking_budget": ("the budget of thinking", "most tokens of thinking")}
"""Parameters by their names in a title and on an axis, where these are others."""
_DASHES = ([1, 0], [8, 4], [2, 3], [10, 3, 2, 3])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
"""With six colours, no two of thirty names look the same."""
_SIZES = {"condition": {"test": "datum['large mark']", "value": 120}, "value": 40}
_FORMS: dict[CostUnit, str] = {"tokens": ",~r", "compute": "~s", "seconds": ",~r"}
_COST_NOTES: dict[CostUnit, list[str]] = {
    "tokens": [
        "Tokens do not count prompts. A verifier that only reads looks free: compare it by compute."
    ],
    "compute": ["2 FLOPs for each parameter and token of both models, each prefix once."],
    "seconds": ["Wall seconds are the wall time of one run each, over its problems."],
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
    unknown = [
        name
        for name, of_name in rows.items()
        if cost == "compute" and any(row.compute_per_problem is None for row in of_name)
    ]
    rows = {name: of_name for name, of_name in rows.items() if name not in unknown}
    places = sorted(
        ((name, row) for name, of_name in rows.items() for row in of_name),
        key=lambda each: cost_of(each[1], cost),
    )
    if not places:
        return None
    every = [row for _, row in places]
    steps = significant_steps(every, cost)
    table: list[TableRow] = []
    for (name, row), rank in zip(places, ranks(every), strict=True):
        low, high = row.interval_95 or (None, None)
        table.append(
            {
                "strategy": name,
                "n": row.n,
                **{parameter: row.setting(parameter) for parameter in parameters},
                "budget": budget_in_words(row.budget) or None,
                _COLUMNS[cost]: round(cost_of(row, cost), 4),
                "baseline": bool(row.name),
                "accuracy": round(row.accuracy or 0.0, 4),
                "low": low,
                "high": high,
                "to the best": round(rank.gain.mean, 4) if rank else None,
                "to the best, low": round(rank.gain.low, 4) if rank else None,
                "to the best, high": round(rank.gain.high, 4) if rank else None,
                "p (Holm)": float(f"{rank.p_value:.3g}") if rank else None,
                "large mark": any(row is each for each in steps),
            }
        )
    unused = {name for name in ("budget", "baseline") if not any(row[name] for row in table)}
    table = [{k: v for k, v in row.items() if k not in unused} for row in table]
    called = {id(row): point_name(name, row, parameters) for name, row in places}
    highest = [
        f"{called[id(row)]} {percent(row.accuracy)} from {_cost_words(cost_of(row, cost), cost)}"
        for row in pareto_rows(every, cost)
    ]
    start, *higher = (called[id(row)] for row in steps)
    significant = (
        f"Significant steps up (large marks): from {start} to {', to '.join(higher)}."
        if higher
        else f"No step up from {start} is significant."
        if len(highest) > 1
        else "Nothing that costs more is more accurate."
    )
    x = field(
        f"{_COLUMNS[cost]}:Q",
        title=_TITLES[cost],
        **log_axis([cost_of(row, cost) for row in every], _FORMS[cost]),
    )
    lines = _lines(x, list(rows), size=_SIZES)
    if "baseline" not in unused:
        at, colours = field("accuracy:Q", **ACCURACY), tint("strategy", list(rows))
        level = mark("rule", {"strokeDash": [6, 4]}, y=at, color=colours)
        lines = layers({**level, "transform": [{"filter": "datum.baseline"}]}, lines)
    return Figure(
        f"accuracy-against-{cost}",
        f"Accuracy against {_COLUMNS[cost]}",
        f"Highest measured: {'; '.join(highest)}. {significant}",
        table,
        spec(lines, 300),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems). Large marks: the cheapest "
            "run, and runs significantly more accurate than the large mark to their left (McNemar "
            "on the same problems, corrected).",
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


def _lines(x: Spec, names: Sequence[str], **marks: Spec) -> Spec:
    """Accuracy over `x`, a line with intervals for each name; `marks` are those of the points."""
    shape = field("strategy:N", title=None, scale=_each(names, _SHAPES), legend=legend(names))
    colours, points = tint("strategy", names), {"shape": shape, **marks}
    lines = {
        "strokeDash": field("strategy:N", scale=_each(names, _DASHES), legend=None),
        "opacity": {"value": 1},  # a curve under another one shows in its gaps, in its own colour
    }
    return measured(x, "accuracy", color=colours, marks=points, lines=lines, **ACCURACY)


def pareto_rows(rows: Sequence[Row], cost: CostUnit) -> list[Row]:
    """The rows that are more accurate than all cheaper ones, by rising cost."""
    return [
        rows[place]
        for place in pareto_front([(cost_of(row, cost), row.accuracy or 0.0) for row in rows])
    ]


def significant_steps(rows: Sequence[Row], cost: CostUnit) -> list[Row]:
    """The rows on the Pareto front that the problems tell apart, by rising cost.

    It begins with the cheapest one; a dearer one joins where it is significantly more accurate than
    the last, on the same problems, corrected for how many may join (Bonferroni).
    """
    first, *dearer = pareto_rows(rows, cost)
    steps = [first]
    for row in dearer:
        gain = row.gain_over(steps[-1])
        if gain and gain.mean > 0 and gain.p_value * len(dearer) < SIGNIFICANT:
            steps.append(row)
    return steps


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
    shares = ", ".join(
        f"{name} {share_with_interval(row.accuracy or 0.0, row.problems)}" for name, row in ranked
    )
    budget = f"{_cost_words(least, cost)} per problem"
    return [f"At the smallest budget that every strategy can meet ({budget}): {shares}."]


def cost_of(row: Row, cost: CostUnit) -> float:
    """The cost of a solved problem; never 0 when rounded, which no logarithmic axis shows."""
    costs: dict[CostUnit, float] = {
        "tokens": row.tokens_per_problem,
        "compute": row.compute_per_problem or 0.0,
        "seconds": row.wall_s_per_problem,
    }
    return max(costs[cost], 1e-4)


def _cost_words(value: float, cost: CostUnit) -> str:
    return flops(value) if cost == "compute" else f"{number(value)} {_COLUMNS[cost]}"


def _each(names: Sequence[str], looks: Sequence[Any]) -> Spec:
    """One of the looks for each name, in turn."""
    return {"domain": list(names), "range": list(islice(cycle(looks), len(names)))}


_WHY_NO_CURVE: dict[NoCurve, str] = {
    "dependent": "only where a run of that n was made",
    "limits": "only where a run of that n was made, since limits are those of whole problems",
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
            notes = [*notes, f"{listed(list(dict.fromkeys(dependent)))}: {why}."]
    return Figure(
        "accuracy-over-n",
        "Accuracy over n",
        _highest(table, "n", problems),
        table,
        spec(_lines(doubling_axis("n", "completions (n)"), list(curves)), 280),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems).",
            *_from_blocks(names, rows, curves),
            *notes,
        ],
    )


def _from_blocks(
    names: Sequence[str], rows: Sequence[Row], curves: Mapping[str, Mapping[int, Point]]
) -> list[str]:
    """A note of the points for which no run was made."""
    measured_at = {(name, row.n) for name, row in zip(names, rows, strict=True)}
    sizes = {n for name, points in curves.items() for n in points if (name, n) not in measured_at}
    points = listed([f"n={n}" for n in sorted(sizes)])
    whence = "come from a run of a larger n, split into blocks, where no run of that n was made"
    return [f"Points at {points} {whence}."] if sizes else []


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
    x = field(f"{parameter}:Q", title=axis, scale={"zero": False, "padding": 15})
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
        f"In {count_of(other, 'run')} other problems are right than under the first schedule of "
        "the search."
        if other
        else "The same problems are right under each schedule of a search."
    )
    chart = bars(
        field("seconds:Q", title="seconds of the whole run"),
        "search",
        None,
        yOffset=field("schedule:N", sort=names),
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
