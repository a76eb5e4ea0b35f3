"""The figures of several runs side by side: what accuracy costs, and what n and schedule change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import altair as alt

from tts.runs.compare import Row as Compared
from tts.runs.compare import in_order, joined_curves, label, read_rows, varying
from tts.runs.statistics import best_within, half_width, pareto_front

from .charts import (
    ALL_FIELDS,
    BLUE,
    COLOURS,
    MOST_ROWS,
    PERCENT,
    chart,
    number,
    percent,
    spec,
    thinned,
    tint,
)
from .figure import Figure, Row

Cost = Literal["tokens", "seconds"]
_LEGEND = alt.Legend(orient="top", columns=2)
_LOGARITHMIC = alt.Scale(type="log", nice=False, padding=15)
_TITLES: dict[Cost, str] = {
    "tokens": "generated tokens per problem",
    "seconds": "seconds per problem (wall time over problems)",
}


def group_figures(folders: Sequence[Path]) -> list[Figure]:
    """The figures of runs and groups of runs; those of a group that have not finished are left out.

    None of runs without references. Raises RunError.
    """
    rows: list[Compared] = []
    unfinished: list[str] = []
    for folder in folders:
        found, missing = read_rows(folder)
        rows += found
        unfinished += missing
    notes = [f"Not finished, and left out: {', '.join(unfinished)}."] if unfinished else []
    return figures_of_rows(in_order(rows), notes)


def figures_of_rows(rows: Sequence[Compared], notes: Sequence[str]) -> list[Figure]:
    """The same of rows that have been read; `notes` are added to those of each figure."""
    rows = [row for row in rows if row.accuracy is not None and row.problems]
    if not rows:
        return []
    names = _names(rows)
    found = (
        cost_figure(rows, names, "tokens", notes),
        cost_figure(rows, names, "seconds", notes),
        at_equal_cost(rows, "tokens", notes),
        at_equal_cost(rows, "seconds", notes),
        over_n(rows, notes),
        schedules(rows, notes),
    )
    return [figure for figure in found if figure]


def cost_figure(
    rows: Sequence[Compared], names: Sequence[str], cost: Cost, notes: Sequence[str]
) -> Figure:
    """Accuracy against a cost per problem, with the Pareto front."""
    points = [(_cost(row, cost), row.accuracy or 0.0) for row in rows]
    front = pareto_front(points)
    table: list[Row] = []
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        low, high = row.interval_95 or (None, None)
        table.append(
            {
                "run": name,
                "strategy": row.strategy,
                "n": row.n,
                cost: round(points[place][0], 4),
                "accuracy": row.accuracy,
                "low": low,
                "high": high,
                "on the front": place in front,
            }
        )
    x = alt.X(f"{cost}:Q", title=_TITLES[cost], scale=_LOGARITHMIC)
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    on_front = "datum['on the front']"
    drawn = alt.layer(
        chart()
        .transform_filter(on_front)
        .mark_line(interpolate="step-after", color=BLUE, strokeDash=[4, 3], opacity=0.7)
        .encode(x=x, y=_accuracy("accuracy:Q")),
        chart()
        .mark_rule(opacity=0.4)
        .encode(
            x=x, y=_accuracy("low:Q"), y2="high:Q", color=tint("strategy", strategies, columns=2)
        ),
        chart()
        .mark_point(filled=True, tooltip=ALL_FIELDS)
        .encode(
            x=x,
            y=_accuracy("accuracy:Q"),
            color=tint("strategy", strategies, columns=2),
            shape=alt.Shape("strategy:N", title=None, scale=_shapes(strategies), legend=_LEGEND),
            size=alt.condition(on_front, alt.value(120), alt.value(40)),
        ),
    )
    steps = "; ".join(
        f"{names[place]} ({percent(points[place][1])} for {number(points[place][0])} {cost})"
        for place in front
    )
    reading = (
        f"{len(front)} of {len(rows)} are on the Pareto front: no other is at least as right for "
        f"no more {cost} per problem. From the cheapest to the best: {steps}."
        f"{_near_the_front(rows, points, front)}"
    )
    return Figure(
        f"accuracy-against-{cost}",
        f"Accuracy against {cost}",
        reading,
        table,
        spec(drawn, 300),
        notes=["Vertical lines are 95% intervals (Wilson); large marks are on the front.", *notes],
    )


def _near_the_front(
    rows: Sequence[Compared], points: Sequence[tuple[float, float]], front: Sequence[int]
) -> str:
    """How many runs off the front are not told apart from it, by their intervals."""
    off = [place for place in range(len(rows)) if place not in front]
    reaching = 0
    for place in off:
        ahead = best_within(points, points[place][0])
        interval = rows[place].interval_95
        if ahead is not None and interval and interval[1] >= points[ahead][1]:
            reaching += 1
    if not reaching:
        return ""
    return (
        f" Off the front: {len(off)}. The intervals of {reaching} reach it at their cost, so these "
        "problems do not tell them apart from it."
    )


def at_equal_cost(rows: Sequence[Compared], cost: Cost, notes: Sequence[str]) -> Figure | None:
    """What each strategy reaches within the same budgets; None where there is one strategy.

    A strategy's accuracy within a budget is that of its best run that costs no more: the step of
    its own Pareto front, nothing is interpolated.
    """
    runs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        runs.setdefault(row.strategy, []).append((_cost(row, cost), row.accuracy or 0.0))
    if len(runs) < 2:
        return None
    costs = sorted({point[0] for points in runs.values() for point in points})
    table: list[Row] = []
    for budget in thinned(costs, MOST_ROWS // len(runs)):
        for strategy, points in runs.items():
            place = best_within(points, budget)
            if place is not None:
                table.append(
                    {"strategy": strategy, cost: round(budget, 4), "accuracy": points[place][1]}
                )
    least = max(min(point[0] for point in points) for points in runs.values())
    within = {
        strategy: points[place][1]
        for strategy, points in runs.items()
        if (place := best_within(points, least)) is not None
    }
    ranked = sorted(within.items(), key=lambda reached: -reached[1])
    drawn = (
        chart()
        .mark_line(interpolate="step-after", point={"size": 20}, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X(f"{cost}:Q", title=f"budget: {_TITLES[cost]}", scale=_LOGARITHMIC),
            y=_accuracy("accuracy:Q"),
            color=tint("strategy", list(runs), columns=2),
            strokeDash=_dashed(list(runs)),
        )
    )
    return Figure(
        f"accuracy-at-equal-{cost}",
        f"Accuracy at equal {cost}",
        f"Within {number(least)} {cost} per problem, the least at which each strategy has a run: "
        f"{', '.join(f'{name} {percent(share)}' for name, share in ranked)}.",
        table,
        spec(drawn, 280),
        notes=["Each strategy's best run within the budget; nothing is interpolated.", *notes],
    )


def over_n(rows: Sequence[Compared], notes: Sequence[str]) -> Figure | None:
    """Accuracy over n, a line for each strategy; None where no strategy has two points."""
    also = varying(rows)
    curves = joined_curves([label(row, also) for row in rows], rows)
    table: list[Row] = [
        {"strategy": name, "n": n, "accuracy": point.accuracy, "pass@n": point.pass_at_n}
        for name, points in curves.items()
        for n, point in sorted(points.items())
    ]
    if not table or all(len(points) < 2 for points in curves.values()):
        return None
    names = list(curves)
    drawn = (
        chart()
        .mark_line(point=True, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("n:Q", title="completions (n)", scale=alt.Scale(type="log", base=2)),
            y=_accuracy("accuracy:Q"),
            color=tint("strategy", names, columns=2),
            strokeDash=_dashed(names),
        )
    )
    top = max(table, key=lambda row: float(row["accuracy"] or 0.0))
    widest = max(half_width(point.accuracy, row.problems) for row in rows for point in row.curve)
    return Figure(
        "accuracy-over-n",
        "Accuracy over n",
        f"The highest accuracy is {percent(float(top['accuracy'] or 0.0))}: {top['strategy']} at "
        f"n={top['n']}. 95% intervals are at most ±{100 * widest:.1f} points (Wilson).",
        table,
        spec(drawn, 280),
        notes=[
            "Below a run's own n: averages over its disjoint blocks of chains or subtrees.",
            *notes,
        ],
    )


def _accuracy(field: str) -> alt.Y:
    return alt.Y(field, title="accuracy", axis=PERCENT, scale=alt.Scale(zero=False))


def _shapes(names: Sequence[str]) -> alt.Scale:
    """A shape for each of the six colours' rounds, so that no two names look the same."""
    shapes = ["circle", "square", "triangle-up", "diamond", "cross"]
    return alt.Scale(
        domain=list(names),
        range=[shapes[place // len(COLOURS) % len(shapes)] for place in range(len(names))],
    )


def schedules(rows: Sequence[Compared], notes: Sequence[str]) -> Figure | None:
    """How long the same searches took under each schedule; None where only one was used."""
    searches: dict[str, dict[str, Compared]] = {}
    for row in rows:
        parameters = ", ".join(f"{name}={value}" for name, value in row.differs.items())
        same = f"{row.strategy}{f' ({parameters})' if parameters else ''}, n={row.n}"
        searches.setdefault(same, {}).setdefault(row.schedule, row)
    several = {name: by for name, by in searches.items() if len(by) > 1}
    if not several:
        return None
    table: list[Row] = []
    for name, by_schedule in several.items():
        slowest = max(row.wall_s for row in by_schedule.values())
        table += [
            {
                "search": name,
                "schedule": schedule,
                "seconds": round(row.wall_s, 3),
                "problems": row.problems,
                "speed-up": round(slowest / row.wall_s, 3) if row.wall_s else None,
            }
            for schedule, row in by_schedule.items()
        ]
    names = list(dict.fromkeys(str(row["schedule"]) for row in table))
    best = max(table, key=lambda row: float(row["speed-up"] or 0.0))
    drawn = (
        chart()
        .mark_bar(tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("seconds:Q", title="seconds of the whole run"),
            y=alt.Y("search:N", title=None, axis=alt.Axis(labelLimit=160)),
            yOffset=alt.YOffset("schedule:N", sort=names),
            color=tint("schedule", names, columns=2),
        )
    )
    return Figure(
        "schedules",
        "Schedules side by side",
        f"The largest difference is {number(float(best['speed-up'] or 0.0))} times: "
        f"{best['search']} under {best['schedule']}, against the slowest schedule of the same "
        f"search, in one run each. {_same_answers(list(several.values()))}",
        table,
        spec(drawn, 28 * len(table)),
        notes=notes,
    )


def _same_answers(searches: Sequence[Mapping[str, Compared]]) -> str:
    """Whether the schedules of each search have the same problems right, as they should."""
    other = 0
    for by_schedule in searches:
        first, *others = (row.right for row in by_schedule.values())
        other += any(right != first for right in others)
    if not other:
        return "The same problems are right under each schedule of a search."
    return (
        f"In {other} of {len(searches)} searches the schedules do not have the same problems right."
    )


def _dashed(names: Sequence[str]) -> alt.StrokeDash:
    """Solid for the first six lines, then dashed in the same colours."""
    patterns = [[1, 0], [6, 3], [2, 2]]
    dashes = [patterns[place // len(COLOURS) % len(patterns)] for place in range(len(names))]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash("strategy:N", legend=None, scale=scale)


def _cost(row: Compared, cost: Cost) -> float:
    """Per problem that was judged; never 0 when rounded, which no logarithmic axis shows."""
    total = row.generated_tokens if cost == "tokens" else row.wall_s
    return max(total / row.problems, 1e-4)


def _names(rows: Sequence[Compared]) -> list[str]:
    also = varying(rows)
    return [f"{label(row, also)}, n={row.n}" for row in rows]
