"""The figures of runs compared problem by problem, each with the first one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from tts.build.errors import RunError
from tts.runs.compare import (
    PairedRun,
    Setting,
    compare_runs,
    differing_settings,
    short_names,
)
from tts.runs.measured_run import MeasuredRun, expand_groups

from ..comparison import setting_cell
from .charts import (
    ALL_FIELDS,
    BLUE,
    GREEN,
    LOGARITHMIC,
    LONG_NAMES,
    MOST_ROWS,
    PURPLE,
    SKY,
    VERMILLION,
    bars_height,
    chart,
    intervals,
    legend,
    spec,
    thinned,
)
from .figure import Figure, Row, Spec

MOST_PAIRS = 6
"""Runs that are compared with the first problem by problem; of the others there are averages."""
_OUTCOMES = {
    "both": GREEN,
    "only the baseline": VERMILLION,
    "only this run": BLUE,
    "neither": PURPLE,
}


def compare_figures(folders: Sequence[Path]) -> list[Figure]:
    """The figures of two or more runs, or of a group's runs, on the problems that they share.

    Raises RunError where there are no two runs, or one shares no problem with the first.
    """
    found = expand_groups(folders)
    if len(found) < 2:
        raise RunError("A comparison needs two runs or more.", hint="Name another run's folder.")
    runs = [MeasuredRun.load(folder) for folder in found]
    return comparison_figures(runs, short_names(found))


def comparison_figures(runs: Sequence[MeasuredRun], names: Sequence[str]) -> list[Figure]:
    """The same of runs whose logs have been read, under these names."""
    pairs = dict(zip(names[1:], compare_runs(runs), strict=True))
    figures = [
        settings(differing_settings([run.config for run in runs]), names),
        accuracy_differences(pairs, names[0]),
        cost_differences(pairs, names[0]),
    ]
    for place, (name, pair) in enumerate(list(pairs.items())[:MOST_PAIRS], start=1):
        figures += [
            by_problem(pair, names[0], name, place),
            disagreements(pair, names[0], name, place),
        ]
    return [figure for figure in figures if figure]


def settings(differing: Sequence[Setting], names: Sequence[str]) -> Figure | None:
    """The differences between the runs' configurations, as a table; None if there are none."""
    if not differing:
        return None
    rows: list[Row] = []
    for each in differing:
        row: Row = {"setting": each.name}
        row.update(zip(names, map(setting_cell, each.values), strict=True))
        rows.append(row)
    count = len(differing)
    return Figure(
        "settings",
        "What differs",
        f"The runs differ in {count} {'setting' if count == 1 else 'settings'}: "
        f"{', '.join(each.name for each in differing)}.",
        rows,
    )


def accuracy_differences(pairs: dict[str, PairedRun], baseline: str) -> Figure | None:
    """Each run's accuracy minus the baseline's; None without references."""
    rows: list[Row] = []
    for name, pair in pairs.items():
        if pair.gain is not None and pair.gain_95 is not None:
            low, high = pair.gain_95
            rows.append(
                {
                    "run": name,
                    "points": round(100 * pair.gain, 2),
                    "low": round(100 * low, 2),
                    "high": round(100 * high, 2),
                    "only the baseline": len(pair.only_baseline),
                    "only this run": len(pair.only_other),
                    "problems": pair.judged,
                    "p (McNemar)": round(pair.p_value, 5),
                }
            )
    if not rows:
        return None
    parts = [
        f"{row['run']} {row['points']:+.1f} points ({row['low']:+.1f} to {row['high']:+.1f})"
        for row in rows
    ]
    return Figure(
        "accuracy-differences",
        f"Accuracy against {baseline}",
        f"Right answers more or fewer than {baseline} on the common problems: {'; '.join(parts)}. "
        "Where the interval holds 0 the problems do not tell the two apart.",
        rows,
        _differences_spec("points", "points of accuracy", [str(row["run"]) for row in rows]),
        notes=["95% intervals of paired shares (Agresti and Min, 2005)."],
    )


def cost_differences(pairs: dict[str, PairedRun], baseline: str) -> Figure | None:
    """Each run's costs per problem, relative to the baseline's."""
    rows: list[Row] = []
    for name, pair in pairs.items():
        for cost in pair.costs:
            if cost.baseline:
                low, high = (100 * end / cost.baseline for end in cost.difference.interval_95)
                rows.append(
                    {
                        "run": cost.name if len(pairs) == 1 else f"{name}: {cost.name}",
                        "percent": round(100 * cost.difference.mean / cost.baseline, 2),
                        "low": round(low, 2),
                        "high": round(high, 2),
                        "baseline": round(cost.baseline, 3),
                        "this run": round(cost.other, 3),
                        "problems": cost.difference.count,
                    }
                )
    if not rows:
        return None
    first = rows[0]
    return Figure(
        "cost-differences",
        f"Cost per problem against {baseline}",
        f"More or less than {baseline} on the same problems, in percent of its mean. "
        f"{first['run']}: {first['percent']:+.1f}% ({first['low']:+.1f} to "
        f"{first['high']:+.1f}).",
        rows,
        _differences_spec("percent", "percent", [str(row["run"]) for row in rows]),
        notes=[
            "95% intervals of paired differences. Seconds are from a problem's start to its "
            "answer, which depends on how many problems run at once."
        ],
    )


def by_problem(pair: PairedRun, baseline: str, name: str, place: int) -> Figure | None:
    """The tokens of each common problem in both runs, and who had it right."""
    ours, theirs = pair.baseline.measures.problems, pair.other.measures.problems
    only_baseline, only_other = set(pair.only_baseline), set(pair.only_other)
    rows: list[Row] = []
    for problem in thinned(pair.common):
        if problem in only_baseline:
            outcome = "only the baseline"
        elif problem in only_other:
            outcome = "only this run"
        else:
            outcome = "both" if ours[problem].right(pair.baseline.rule) else "neither"
        rows.append(
            {
                "problem": problem,
                "baseline tokens": max(1, ours[problem].tokens),
                "tokens": max(1, theirs[problem].tokens),
                "right in": outcome,
            }
        )
    if len(rows) < 2:
        return None
    scale, axis = alt.Scale(type="log", nice=False, padding=12), LOGARITHMIC
    most = max(max(ours[p].tokens, theirs[p].tokens) for p in pair.common)
    least = max(1, min(min(ours[p].tokens, theirs[p].tokens) for p in pair.common))
    outcomes = [each for each in _OUTCOMES if any(row["right in"] == each for row in rows)]
    equal = (
        chart()
        .mark_rule(strokeDash=[4, 4], color=SKY)
        .encode(
            x=alt.XDatum(least, scale=scale),
            x2=alt.X2Datum(most),
            y=alt.YDatum(least, scale=scale),
            y2=alt.Y2Datum(most),
        )
    )
    dots = (
        chart()
        .mark_point(filled=True, size=45, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("baseline tokens:Q", title=f"tokens in {baseline}", scale=scale, axis=axis),
            y=alt.Y("tokens:Q", title=f"tokens in {name}", scale=scale, axis=axis),
            color=alt.Color(
                "right in:N",
                title="right in",
                scale=alt.Scale(domain=outcomes, range=[_OUTCOMES[each] for each in outcomes]),
                legend=legend(outcomes),
            ),
        )
    )
    cheaper = sum(theirs[p].tokens < ours[p].tokens for p in pair.common)
    shown = f"{len(rows):,} of {len(pair.common):,} problems are drawn, evenly taken."
    return Figure(
        f"by-problem-{place}",
        f"Problem by problem: {name}",
        f"{name} takes fewer tokens than {baseline} on {cheaper:,} of {len(pair.common):,} "
        f"problems (below the dashed line). {len(pair.only_other):,} only it has right, "
        f"{len(pair.only_baseline):,} only {baseline}.",
        rows,
        spec(alt.layer(equal, dots), 300),
        notes=[shown] if len(rows) < len(pair.common) else [],
    )


def disagreements(pair: PairedRun, baseline: str, name: str, place: int) -> Figure | None:
    """The problems that only one of the two has right, as a table; None if there are none."""
    ours, theirs = pair.baseline.measures.problems, pair.other.measures.problems
    found = [(problem, baseline) for problem in pair.only_baseline]
    found += [(problem, name) for problem in pair.only_other]
    if not found:
        return None
    rows: list[Row] = [
        {
            "problem": problem,
            "level": ours[problem].level,
            "right in": right_in,
            f"answer in {baseline}": ours[problem].answers.get(pair.baseline.rule),
            f"answer in {name}": theirs[problem].answers.get(pair.other.rule),
        }
        for problem, right_in in found[:MOST_ROWS]
    ]
    more = len(found) - len(rows)
    return Figure(
        f"disagreements-{place}",
        f"Disagreements: {name}",
        f"{len(found):,} of {pair.judged:,} problems are right in one of the two only: "
        f"{len(pair.only_baseline):,} in {baseline}, {len(pair.only_other):,} in {name}.",
        rows,
        notes=[f"{more:,} more are left out."] if more else [],
    )


def _differences_spec(column: str, title: str, order: Sequence[str]) -> Spec:
    y = alt.Y("run:N", title=None, sort=list(order), axis=LONG_NAMES)
    zero = chart().mark_rule(strokeDash=[4, 4], color=VERMILLION).encode(x=alt.XDatum(0))

    def x(field: str) -> alt.X:
        return alt.X(field, title=title)

    return spec(alt.layer(zero, *intervals(column, y, x)), bars_height(len(order)))
