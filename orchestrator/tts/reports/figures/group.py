"""The figures of several runs side by side: what accuracy costs, and what n and schedule change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import altair as alt

from tts.runs.compare import Row as Compared
from tts.runs.compare import asked_alike, in_order, joined_curves, label, read_rows, varying
from tts.runs.statistics import best_within, half_width, pareto_front, share_difference_95

from .charts import (
    ALL_FIELDS,
    BLUE,
    COLOURS,
    LOGARITHMIC,
    LONG_NAMES,
    MOST_ROWS,
    PERCENT,
    chart,
    legend,
    number,
    percent,
    spec,
    thinned,
    tint,
)
from .equal_cost import are_at_equal_cost, equal_cost_figures
from .figure import Figure, Row, Spec

Cost = Literal["tokens", "seconds"]
_ONE_RUN = "Seconds are the wall time of one run each: they have no interval."
_SCALE = alt.Scale(type="log", nice=False, padding=15)
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
    groups = asked_alike(rows)
    if len(groups) > 1:
        return [
            replace(
                figure,
                name=f"{figure.name}-{place}",
                title=f"{figure.title}: {_asked_in_words(alike[0])}",
            )
            for place, alike in enumerate(groups, start=1)
            if len(alike) > 1
            for figure in figures_of_rows(alike, notes)
        ]
    if not rows:
        return []
    names = _names(rows)
    at_cost = (
        equal_cost_figures(rows, notes)
        if are_at_equal_cost(rows)
        else (at_equal_cost(rows, "tokens", notes), at_equal_cost(rows, "seconds", notes))
    )
    found = (
        cost_figure(rows, names, "tokens", notes),
        cost_figure(rows, names, "seconds", notes),
        *at_cost,
        over_n(rows, notes),
        schedules(rows, notes),
    )
    return [figure for figure in found if figure]


def _asked_in_words(row: Compared) -> str:
    return f"{row.problems:,} problems of {Path(row.dataset).name}, seed {row.seed}"


def cost_figure(
    rows: Sequence[Compared], names: Sequence[str], cost: Cost, notes: Sequence[str]
) -> Figure:
    """Accuracy against a cost per problem; of tokens with the front (`certain_front`).

    Seconds are the wall time of one run each, so they have no interval and no front.
    """
    costs = [_cost(row, cost) for row in rows]
    front = certain_front(rows, costs) if cost == "tokens" else []
    table: list[Row] = []
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        low, high = row.interval_95 or (None, None)
        cells: Row = {
            "run": name,
            "strategy": row.strategy,
            "n": row.n,
            cost: round(costs[place], 4),
            "accuracy": row.accuracy,
            "low": low,
            "high": high,
        }
        table.append(cells | {"on the front": place in front} if front else cells)
    return Figure(
        f"accuracy-against-{cost}",
        f"Accuracy against {cost}",
        _front_in_words(rows, names, costs, front)
        if front
        else _ends_in_words(rows, names, costs, cost),
        table,
        _cost_spec(rows, cost, front),
        notes=[
            "Vertical lines are 95% intervals (Wilson)."
            + " Large marks are on the front." * bool(front),
            *([_ONE_RUN] if cost == "seconds" else []),
            *notes,
        ],
    )


def _cost_spec(rows: Sequence[Compared], cost: Cost, front: Sequence[int]) -> Spec:
    x = alt.X(f"{cost}:Q", title=_TITLES[cost], scale=_SCALE, axis=LOGARITHMIC)
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    on_front = "datum['on the front']"
    line = (
        chart()
        .transform_filter(on_front)
        .mark_line(interpolate="step-after", color=BLUE, strokeDash=[4, 3], opacity=0.7)
        .encode(x=x, y=_accuracy("accuracy:Q"))
    )
    bars = (
        chart()
        .mark_rule(opacity=0.4)
        .encode(x=x, y=_accuracy("low:Q"), y2="high:Q", color=tint("strategy", strategies))
    )
    marks = (
        chart()
        .mark_point(filled=True, tooltip=ALL_FIELDS)
        .encode(
            x=x,
            y=_accuracy("accuracy:Q"),
            color=tint("strategy", strategies),
            shape=alt.Shape(
                "strategy:N", title=None, scale=_shapes(strategies), legend=legend(strategies)
            ),
            size=alt.condition(on_front, alt.value(120), alt.value(40)) if front else alt.value(70),
        )
    )
    layers = [line, bars, marks] if len(front) > 1 else [bars, marks]
    return spec(alt.layer(*layers), 300)


def certain_front(rows: Sequence[Compared], costs: Sequence[float]) -> list[int]:
    """The places of the runs on the Pareto front that the problems tell apart, by rising cost.

    It begins with the cheapest run; a dearer one joins where it is right more often than the last
    one beyond the noise (`surely_better`).
    """
    front: list[int] = []
    points = [(each, row.accuracy or 0.0) for each, row in zip(costs, rows, strict=True)]
    for place in pareto_front(points):
        if not front or surely_better(rows[place], rows[front[-1]]):
            front.append(place)
    return front


def surely_better(row: Compared, other: Compared) -> bool:
    """Whether a run is right more often than another one, beyond the noise.

    On the same problems by the interval of the paired difference, else where the runs' own 95%
    intervals do not overlap.
    """
    if row.right and row.right.keys() == other.right.keys():
        gained = sum(right and not other.right[name] for name, right in row.right.items())
        lost = sum(other.right[name] and not right for name, right in row.right.items())
        return share_difference_95(gained, lost, len(row.right))[0] > 0
    if not row.interval_95 or not other.interval_95:
        return False
    return row.interval_95[0] > other.interval_95[1]


def _front_in_words(
    rows: Sequence[Compared], names: Sequence[str], costs: Sequence[float], front: Sequence[int]
) -> str:
    steps = [
        f"{names[place]} ({_share_of(rows[place])}, {number(costs[place])} tokens per problem)"
        for place in front
    ]
    if len(front) == 1:
        more = " No dearer one is right more often beyond the noise." if len(rows) > 1 else ""
        return f"The cheapest run is {steps[0]}.{more}"
    return (
        f"From the cheapest run on, each is right more often than the one before beyond the noise: "
        f"{'; '.join(steps)}. The other {len(rows) - len(front)} cost more than a run on this "
        "front and are not told apart from it, or are worse."
        if len(rows) > len(front)
        else f"From the cheapest run on, each is right more often than the one before beyond the "
        f"noise: {'; '.join(steps)}."
    )


def _ends_in_words(
    rows: Sequence[Compared], names: Sequence[str], costs: Sequence[float], cost: Cost
) -> str:
    cheapest = min(range(len(rows)), key=lambda place: costs[place])
    best = max(range(len(rows)), key=lambda place: (rows[place].accuracy or 0.0, -costs[place]))
    said = [
        f"{names[place]} takes {number(costs[place])} {cost} per problem and has "
        f"{_share_of(rows[place])} right"
        for place in dict.fromkeys((cheapest, best))
    ]
    kinds = (
        ("The fastest is also the most accurate run: ",)
        if len(said) == 1
        else ("The fastest run: ", "The most accurate: ")
    )
    return " ".join(f"{kind}{text}." for kind, text in zip(kinds, said, strict=True))


def _share_of(row: Compared) -> str:
    """`40.0% (22 to 61%)`, with the 95% interval."""
    if not row.interval_95:
        return percent(row.accuracy)
    low, high = row.interval_95
    return f"{percent(row.accuracy)} ({100 * low:.0f} to {100 * high:.0f}%)"


def at_equal_cost(rows: Sequence[Compared], cost: Cost, notes: Sequence[str]) -> Figure | None:
    """The accuracy of each strategy within the same budgets; None where there is one strategy.

    A strategy's accuracy within a budget is that of its best run that costs no more: the step of
    its own Pareto front, nothing is interpolated.
    """
    runs: dict[str, list[Compared]] = {}
    for row in rows:
        runs.setdefault(row.strategy, []).append(row)
    if len(runs) < 2:
        return None
    points = {
        name: [(_cost(row, cost), row.accuracy or 0.0) for row in of_it]
        for name, of_it in runs.items()
    }
    costs = sorted({point[0] for of_it in points.values() for point in of_it})
    table: list[Row] = []
    for budget in thinned(costs, MOST_ROWS // len(runs)):
        for strategy, of_it in points.items():
            place = best_within(of_it, budget)
            if place is not None:
                table.append(
                    {"strategy": strategy, cost: round(budget, 4), "accuracy": of_it[place][1]}
                )
    least = max(min(point[0] for point in of_it) for of_it in points.values())
    within = {
        strategy: runs[strategy][place]
        for strategy, of_it in points.items()
        if (place := best_within(of_it, least)) is not None
    }
    ranked = sorted(within.items(), key=lambda reached: -(reached[1].accuracy or 0.0))
    drawn = (
        chart()
        .mark_line(interpolate="step-after", point={"size": 20}, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X(f"{cost}:Q", title=f"budget: {_TITLES[cost]}", scale=_SCALE, axis=LOGARITHMIC),
            y=_accuracy("accuracy:Q"),
            color=tint("strategy", list(runs)),
            strokeDash=_dashed(list(runs)),
        )
    )
    return Figure(
        f"accuracy-at-equal-{cost}",
        f"Accuracy at equal {cost}",
        f"Within {number(least)} {cost} per problem, the least at which each strategy has a run, "
        f"with 95% intervals: {', '.join(f'{name} {_share_of(row)}' for name, row in ranked)}.",
        table,
        spec(drawn, 280),
        notes=[
            "Each strategy's best run within the budget; nothing is interpolated.",
            *([_ONE_RUN] if cost == "seconds" else []),
            *notes,
        ],
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
            color=tint("strategy", names),
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
    searches: dict[tuple[object, ...], dict[str, Compared]] = {}
    for row in rows:
        searches.setdefault((label(row, ()), row.n, row.search), {}).setdefault(row.schedule, row)
    several = [by for by in searches.values() if len(by) > 1]
    if not several:
        return None
    also = [name for name in varying(rows) if name != "schedule"]
    table: list[Row] = []
    for by_schedule in several:
        first = next(iter(by_schedule.values()))
        name = f"{label(first, also)}, n={first.n}"
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
            y=alt.Y("search:N", title=None, axis=LONG_NAMES),
            yOffset=alt.YOffset("schedule:N", sort=names),
            color=tint("schedule", names),
        )
    )
    return Figure(
        "schedules",
        "Schedules side by side",
        f"The largest difference is {number(float(best['speed-up'] or 0.0))} times: "
        f"{best['search']} under {best['schedule']}, against the slowest schedule of the same "
        "search. That is one run each, without an interval. "
        f"{_same_answers(several)}",
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
    return alt.StrokeDash("strategy:N", title=None, legend=legend(names), scale=scale)


def _cost(row: Compared, cost: Cost) -> float:
    """Per problem that was solved; never 0 when rounded, which no logarithmic axis shows."""
    total = row.generated_tokens if cost == "tokens" else row.wall_s
    return max(total / (row.solved or row.problems), 1e-4)


def _names(rows: Sequence[Compared]) -> list[str]:
    also = varying(rows)
    return [f"{label(row, also)}, n={row.n}" for row in rows]
