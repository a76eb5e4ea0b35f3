"""Accuracy against the cost of a problem: tokens, compute or seconds, with the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt

from tts.runs.compare import (
    Row,
    best_rival,
)
from tts.runs.statistics import best_within, interval, pareto_front

from .charts import (
    ACCURACY,
    COLOURS,
    chart,
    flops,
    legend,
    log_axis,
    measured,
    number,
    percent,
    spec,
    tint,
)
from .figure import Figure, Spec, TableRow
from .results import budget_in_words

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
