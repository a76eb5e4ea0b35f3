"""The figures of runs side by side, and problem by problem: each run against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

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
from tts.runs.pairs import Pair, Setting, Trees
from tts.runs.run import Run
from tts.runs.statistics import best_within, interval, pareto_front, share_with_interval

from .charts import (
    ALL_FIELDS,
    BLUE,
    COLOURS,
    GREEN,
    LONG_NAMES,
    MOST_ROWS,
    PERCENT,
    PURPLE,
    SKY,
    VERMILLION,
    bars,
    bars_height,
    chart,
    doubling_axis,
    flops,
    intervals,
    legend,
    line,
    listed,
    log_axis,
    measured,
    number,
    percent,
    spec,
    thinned,
    tint,
)
from .figure import Figure, Spec, TableRow
from .results import budget_in_words, results_figures

CostUnit = Literal["tokens", "compute", "seconds"]
MOST_PAIRS = 6
"""Runs that are compared with the first problem by problem; of the others there are the rows."""
MOST_IDS = 20
"""Problems that are named in a cell; the others are counted."""
_WHY_NO_CURVE: dict[NoCurve, str] = {
    "dependent": "at its own n only, since no part of its search is a smaller search",
    "limits": "at its own n only, since its limits are those of whole problems",
}
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
_ACCURACY: dict[str, Any] = {
    "title": "accuracy",
    "axis": PERCENT,
    "scale": alt.Scale(zero=False, nice=False, padding=12),
}
_FIRST = ("settings", "accuracy-differences", "cost-differences")
"""Figures of pairs that stand at once below the tables."""
_RIGHT_IN = {
    "both": GREEN,
    "only the baseline": VERMILLION,
    "only this run": BLUE,
    "neither": PURPLE,
    "no reference": SKY,
}


def comparison_figures(found: Comparison) -> list[Figure]:
    """The figures of a comparison: its tables and the paired differences, then the others; of
    rows without references, and of pairs, as far as there are any.
    """
    unfinished = [name for names in found.unfinished.values() for name in names]
    notes = [f"Not finished, and left out: {', '.join(unfinished)}."] if unfinished else []
    paired = pairs_figures(found)
    tables = [figure for figure in paired if figure.name in _FIRST]
    return [
        *results_figures(found.rows),
        *tables,
        *rows_figures(found.rows, notes),
        *(figure for figure in paired if figure not in tables),
    ]


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
    found = (
        cost_figure(together, "tokens", notes),
        cost_figure(together, "compute", notes),
        cost_figure(together, "seconds", notes),
        over_n(alike, notes),
        over_thinking(alike, notes),
        schedules(alike, notes),
    )
    return [figure for figure in found if figure]


def pairs_figures(found: Comparison) -> list[Figure]:
    """The figures of each run against the first; none unless there are pairs."""
    if not found.pairs:
        return []
    names, runs = found.names, found.runs
    named = dict(zip(names[1:], found.pairs, strict=True))
    figures = [
        settings_figure(found.settings, names),
        accuracy_differences(named, names[0]),
        cost_differences(named, names[0]),
        trees_figure(named, names[0]),
    ]
    for place, (name, pair) in enumerate(list(named.items())[:MOST_PAIRS], start=1):
        both, called = (runs[0], runs[place]), (names[0], name)
        figures += [by_problem(pair, both, called, place), disagreements(pair, both, called, place)]
    return [figure for figure in figures if figure]


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
    drawn = measured(
        alt.X(f"{cost}:Q", title=_TITLES[cost], **log_axis(costs, _FORMS[cost])),
        "accuracy",
        color=tint("strategy", names),
        marks=marks,
        **_ACCURACY,
    )
    if baseline:
        level = chart().transform_filter("datum.baseline").mark_rule(strokeDash=[6, 4])
        colours = tint("strategy", names)
        drawn = alt.layer(level.encode(y=alt.Y("accuracy:Q", **_ACCURACY), color=colours), drawn)
    return spec(drawn, 300)


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
    said = ", ".join(f"{name} {_share_of(row)}" for name, row in ranked)
    return f" Within {_cost_words(least, cost)} per problem: {said}."


def _share_of(row: Row) -> str:
    """`40.0% [22.1, 61.3]`, with the 95% interval."""
    low, high = row.interval_95 or (0.0, 1.0)
    return f"{percent(row.accuracy)} {interval(100 * low, 100 * high)}"


def cost_of(row: Row, cost: CostUnit) -> float:
    """Per problem that was solved; never 0 when rounded, which no logarithmic axis shows."""
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
    drawn = _accuracy_lines("n", "completions (n)", list(curves))
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
        spec(drawn, 280),
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
        alt.Y("accuracy:Q", **_ACCURACY),
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
    drawn = _accuracy_lines("budget", "most tokens of thinking", list(curves))
    top, having = _highest(table)
    best = [f"{row['strategy']} with at most {row['budget']:,}" for row in having]
    return Figure(
        "accuracy-over-thinking",
        "Accuracy over the budget of thinking",
        f"The highest accuracy is {percent(top)}: {listed(best)} tokens of thinking in a chain.",
        table,
        spec(drawn, 280),
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
    drawn = bars(
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
        spec(drawn, 28 * len(table)),
        notes=["One run each, without an interval.", *notes],
    )


def settings_figure(differing: Sequence[Setting], names: Sequence[str]) -> Figure | None:
    """The differences between the runs' configurations, as a table; None if there are none."""
    if not differing:
        return None
    rows: list[TableRow] = [
        {"setting": each.name, **dict(zip(names, map(_setting_cell, each.values), strict=True))}
        for each in differing
    ]
    said = ", ".join(each.name for each in differing)
    return Figure("settings", "What differs", f"The runs differ in {said}.", rows)


def _setting_cell(value: Any) -> str:
    """A setting as run.json has it; a dash where a run has none. Long ones are cut."""
    text = "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def accuracy_differences(pairs: Mapping[str, Pair], baseline: str) -> Figure | None:
    """Each run's accuracy minus the baseline's; None without references."""
    rows: list[TableRow] = [
        {
            "run": name,
            "points": round(100 * pair.gain, 2),
            "low": round(100 * pair.gain_95[0], 2),
            "high": round(100 * pair.gain_95[1], 2),
            "only the baseline": len(pair.only_baseline),
            "only this run": len(pair.only_other),
            "both": pair.right[0] - len(pair.only_baseline),
            "problems": pair.judged,
            "p (McNemar)": round(pair.p_value, 5),
        }
        for name, pair in pairs.items()
        if pair.gain is not None and pair.gain_95 is not None
    ]
    return _differences(
        "accuracy-differences",
        f"Accuracy against {baseline}",
        f"Points of right answers more or fewer than {baseline} on the common problems",
        rows,
        "points",
        ["95% intervals of paired shares (Agresti and Min, 2005)."],
    )


def cost_differences(pairs: Mapping[str, Pair], baseline: str) -> Figure | None:
    """Each run's costs per problem, relative to the baseline's."""
    rows: list[TableRow] = [
        {
            "run": _cost_name(cost.name) if len(pairs) == 1 else f"{name}: {_cost_name(cost.name)}",
            "percent": round(100 * cost.difference / cost.baseline, 2),
            "low": round(100 * cost.ratio_95[0] - 100, 2),
            "high": round(100 * cost.ratio_95[1] - 100, 2),
            "baseline": round(cost.baseline, 3),
            "this run": round(cost.other, 3),
            "problems": cost.problems,
        }
        for name, pair in pairs.items()
        for cost in pair.costs
        if cost.ratio_95
    ]
    return _differences(
        "cost-differences",
        f"Cost per problem against {baseline}",
        f"Percent more or less than {baseline} on the same problems",
        rows,
        "percent",
        [
            "95% intervals of the ratio on the same problems (of its logarithm). Seconds are from "
            "a problem's start to its answer, which depends on how many problems run at once."
        ],
    )


def _differences(
    name: str, title: str, what: str, rows: Sequence[TableRow], column: str, notes: Sequence[str]
) -> Figure | None:
    """Dots with intervals about 0, a line for each row; None without rows."""
    if not rows:
        return None
    said = "; ".join(
        f"{row['run']} {row[column]:+.1f} "
        f"{interval(float(row['low'] or 0), float(row['high'] or 0), '+.1f')}"
        for row in rows[:MOST_PAIRS]
    )
    y = alt.Y("run:N", title=None, sort=[str(row["run"]) for row in rows], axis=LONG_NAMES)
    zero = chart().mark_rule(strokeDash=[4, 4], color=VERMILLION).encode(x=alt.XDatum(0))
    drawn = alt.layer(zero, intervals(column, y, title=column, scale=alt.Scale(padding=10)))
    return Figure(
        name,
        title,
        f"{what}: {said}.",
        rows,
        spec(drawn, bars_height(len(rows))),
        notes=notes,
    )


def trees_figure(pairs: Mapping[str, Pair], baseline: str) -> Figure | None:
    """Whether runs that were asked for the same have the same trees, and where they part."""
    rows: list[TableRow] = [
        {
            "run": name,
            "trees": len(pair.common),
            "differ": len(pair.trees.differ),
            "problems": _listed(pair.trees.differ) or None,
            "the first parts": _parting(pair.trees, (baseline, name)),
        }
        for name, pair in pairs.items()
        if pair.trees is not None
    ]
    if not rows:
        return None
    told = [
        f"{row['differ']:,} of {row['trees']:,} trees of {row['run']} differ"
        if row["differ"]
        else f"the trees of {row['run']} are the same"
        for row in rows
    ]
    reading = f"Asked for the same as {baseline}: {'; '.join(told)}."
    return Figure("trees-compared", f"Trees against {baseline}", reading, rows)


def _parting(trees: Trees, names: Sequence[str]) -> str | None:
    """Where the first of the trees that differ begins to."""
    first = trees.first
    if first is None:
        return "in a score, by rounding" if trees.differ else None
    told = [
        f"{'the end' if token is None else token} in {name}"
        for token, name in zip(first.ids, names, strict=True)
    ]
    node = ".".join(map(str, first.node))
    return f"at problem {first.problem}, step {node}, token {first.token}: {', '.join(told)}"


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_IDS:,} more" if len(ids) > MOST_IDS else ""
    return f"{', '.join(ids[:MOST_IDS])}{more}"


def by_problem(
    pair: Pair, runs: tuple[Run, Run], names: tuple[str, str], place: int
) -> Figure | None:
    """The tokens of each common problem in both runs, and who had it right."""
    ours, theirs = (run.totals.problems for run in runs)
    votes = [run.config.vote for run in runs]
    right_in = {
        problem: "both" if ours[problem].right(votes[0]) else "neither"
        for problem in pair.common
        if ours[problem].correct is not None is not theirs[problem].correct
    }
    right_in |= dict.fromkeys(pair.only_baseline, "only the baseline")
    right_in |= dict.fromkeys(pair.only_other, "only this run")
    rows: list[TableRow] = [
        {
            "problem": problem,
            "baseline tokens": max(1, ours[problem].search_tokens),
            "tokens": max(1, theirs[problem].search_tokens),
            "right in": right_in.get(problem, "no reference"),
        }
        for problem in thinned(pair.common)
    ]
    if len(rows) < 2:
        return None
    tokens = [
        max(1, run[problem].search_tokens) for run in (ours, theirs) for problem in pair.common
    ]
    axis = log_axis(tokens, padding=12)
    scale = axis["scale"]
    outcomes = [each for each in _RIGHT_IN if any(row["right in"] == each for row in rows)]
    equal = (
        chart()
        .mark_rule(strokeDash=[4, 4], color=SKY)
        .encode(
            x=alt.XDatum(min(tokens), scale=scale),
            x2=alt.X2Datum(max(tokens)),
            y=alt.YDatum(min(tokens), scale=scale),
            y2=alt.Y2Datum(max(tokens)),
        )
    )
    hues = alt.Scale(domain=outcomes, range=[_RIGHT_IN[each] for each in outcomes])
    dots = (
        chart()
        .mark_point(filled=True, size=45, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("baseline tokens:Q", title=f"tokens in {names[0]}", **axis),
            y=alt.Y("tokens:Q", title=f"tokens in {names[1]}", **axis),
            color=alt.Color("right in:N", title="right in", scale=hues, legend=legend(outcomes)),
        )
    )
    cheaper = sum(
        theirs[problem].search_tokens < ours[problem].search_tokens for problem in pair.common
    )
    shown = f"{len(rows):,} of {len(pair.common):,} problems are drawn, evenly taken."
    return Figure(
        f"by-problem-{place}",
        f"Problem by problem: {names[1]}",
        f"{names[1]} takes fewer tokens than {names[0]} on {cheaper:,} of {len(pair.common):,} "
        f"problems (below the dashed line). {len(pair.only_other):,} only it has right, "
        f"{len(pair.only_baseline):,} only {names[0]}.",
        rows,
        spec(alt.layer(equal, dots), 300),
        notes=[shown] if len(rows) < len(pair.common) else [],
    )


def disagreements(
    pair: Pair, runs: tuple[Run, Run], names: tuple[str, str], place: int
) -> Figure | None:
    """The problems that only one of the two has right, as a table; None if there are none."""
    found = [(problem, names[0]) for problem in pair.only_baseline]
    found += [(problem, names[1]) for problem in pair.only_other]
    if not found:
        return None
    rows: list[TableRow] = []
    for problem, right_in in found[:MOST_ROWS]:
        row: TableRow = {"problem": problem, "right in": right_in}
        row["level"] = runs[0].totals.problems[problem].level
        for run, name in zip(runs, names, strict=True):
            row[f"answer in {name}"] = run.totals.problems[problem].answers.get(run.config.vote)
        rows.append(row)
    more = len(found) - len(rows)
    return Figure(
        f"disagreements-{place}",
        f"Disagreements: {names[1]}",
        f"{len(found):,} of {pair.judged:,} problems are right in one of the two only: "
        f"{len(pair.only_baseline):,} in {names[0]}, {len(pair.only_other):,} in {names[1]}.",
        rows,
        notes=[f"{more:,} more are left out."] if more else [],
    )


def _cost_name(name: str) -> str:
    return name.replace("_", " ")


def _shapes(names: Sequence[str]) -> alt.Scale:
    """A shape for each of the six colours' rounds, so that no two names look the same."""
    shapes = ["circle", "square", "triangle-up", "diamond", "cross"]
    return alt.Scale(
        domain=list(names),
        range=[shapes[place // len(COLOURS) % len(shapes)] for place in range(len(names))],
    )


def _dashed(names: Sequence[str]) -> alt.StrokeDash:
    """Solid for the first six lines, then dashed in the same colours."""
    patterns = [[1, 0], [6, 3], [2, 2]]
    dashes = [patterns[place // len(COLOURS) % len(patterns)] for place in range(len(names))]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash("strategy:N", title=None, legend=legend(names), scale=scale)
