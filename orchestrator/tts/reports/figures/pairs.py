"""The figures of pairs: each run against the first, over all problems and one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tts.runs.compare import Comparison, Pair, Setting, Trees
from tts.runs.run import Run
from tts.runs.statistics import SIGNIFICANT, holm, interval

from .charts import (
    ALL_FIELDS,
    BLUE,
    GREEN,
    LONG_NAMES,
    MOST_ROWS,
    PURPLE,
    SKY,
    VERMILLION,
    Figure,
    Spec,
    TableRow,
    bars_height,
    field,
    intervals,
    layers,
    legend,
    listed,
    log_axis,
    mark,
    spec,
    thinned,
)
from .results import p_in_words

MOST_PAIRS = 6
"""Runs that are compared with the first problem by problem; of the others there are the rows."""
MOST_IDS = 20
"""Problems that are named in a cell; the others are counted."""
MOST_LINES = 24
"""Lines that a figure of differences draws; the rest is in its data."""
_RIGHT_IN = {
    "both": GREEN,
    "only the baseline": VERMILLION,
    "only this run": BLUE,
    "neither": PURPLE,
    "no reference": SKY,
}


def pairs_figures(comparison: Comparison) -> list[Figure]:
    """The figures of each run against the first; none unless there are pairs."""
    if not comparison.pairs:
        return []
    names, runs = comparison.names, comparison.runs
    pairs = dict(zip(names[1:], comparison.pairs, strict=True))
    figures = [
        settings_figure(comparison.settings, names),
        accuracy_differences(pairs, names[0]),
        cost_differences(pairs, names[0]),
        trees_figure(pairs, names[0]),
    ]
    for place, (name, pair) in enumerate(list(pairs.items())[:MOST_PAIRS], start=1):
        both, called = (runs[0], runs[place]), (names[0], name)
        figures += [by_problem(pair, both, called, place), disagreements(pair, both, called, place)]
    return [figure for figure in figures if figure]


def settings_figure(differing: Sequence[Setting], names: Sequence[str]) -> Figure | None:
    """The differences between the runs' configurations, as a table; None if there are none."""
    if not differing:
        return None
    rows: list[TableRow] = [
        {"setting": each.name, **dict(zip(names, map(_setting_cell, each.values), strict=True))}
        for each in differing
    ]
    settings = listed([each.name for each in differing])
    return Figure("settings", "What differs", f"The runs differ in {settings}.", rows)


def _setting_cell(value: Any) -> str:
    """A setting as run.json has it; a dash where a run has none. Long ones are cut."""
    text = "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def accuracy_differences(pairs: Mapping[str, Pair], baseline: str) -> Figure | None:
    """Each run's accuracy minus the baseline's; None without references."""
    judged = {name: pair for name, pair in pairs.items() if pair.gain_95}
    corrected = holm([pair.p_value for pair in judged.values()])
    rows: list[TableRow] = []
    for (name, pair), p_value in zip(judged.items(), corrected, strict=True):
        low, high = pair.gain_95 or (0.0, 0.0)
        rows.append(
            {
                "run": name,
                "points": round(100 * (pair.gain or 0.0), 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "only the baseline": len(pair.only_baseline),
                "only this run": len(pair.only_other),
                "both": pair.right[0] - len(pair.only_baseline),
                "problems": pair.judged,
                "p (McNemar)": round(pair.p_value, 5),
                "p (Holm)": round(p_value, 5),
            }
        )
    significant = [
        f"{name} is significantly {'better' if (pair.gain or 0.0) > 0 else 'worse'} "
        f"(p = {p_in_words(p_value)})".replace("= <", "< ")
        for (name, pair), p_value in zip(judged.items(), corrected, strict=True)
        if p_value < SIGNIFICANT
    ]
    verdict = f"; {listed(significant)}" if significant else "; no difference is significant"
    return _differences(
        "accuracy-differences",
        f"Accuracy against {baseline}",
        f"Points of right answers more or fewer than {baseline} on the common problems",
        rows,
        "points",
        [
            "95% intervals of paired shares (Agresti and Min, 2005). p of McNemar's exact test, "
            "then corrected for how many runs are compared (Holm); significant below 0.05. "
            "Intervals are for one comparison, not corrected."
        ],
        verdict,
    )


def cost_differences(pairs: Mapping[str, Pair], baseline: str) -> Figure | None:
    """Each run's costs per problem, relative to the baseline's."""
    rows: list[TableRow] = [
        {
            "run": ("" if len(pairs) == 1 else f"{name}: ") + cost.name.replace("_", " "),
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
    name: str,
    title: str,
    what: str,
    rows: Sequence[TableRow],
    column: str,
    notes: Sequence[str],
    verdict: str = "",
) -> Figure | None:
    """Dots with intervals about 0, a line for each row; None without rows."""
    if not rows:
        return None
    changes = "; ".join(
        f"{row['run']} {row[column]:+.1f} "
        f"{interval(float(row['low'] or 0), float(row['high'] or 0), '+.1f')}"
        for row in rows[:MOST_PAIRS]
    )
    y = field("run:N", title=None, sort=[str(row["run"]) for row in rows], axis=LONG_NAMES)
    zero = mark("rule", {"strokeDash": [4, 4], "color": VERMILLION}, x={"datum": 0})
    dots = layers(zero, intervals(column, y, title=column, scale={"padding": 10}))
    runs = [str(row["run"]) for row in rows[:MOST_LINES]]
    if more := len(rows) - len(runs):
        dots["transform"] = [{"filter": {"field": "run", "oneOf": runs}}]
        notes = [*notes, f"{more:,} more rows are in the data, and not drawn."]
    return Figure(
        name,
        title,
        f"{what}: {changes}{verdict}.",
        rows,
        spec(dots, bars_height(len(runs))),
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
            "first difference": _parting(pair.trees, (baseline, name)),
        }
        for name, pair in pairs.items()
        if pair.trees is not None
    ]
    if not rows:
        return None
    sentences = [
        f"{row['differ']:,} of {row['trees']:,} trees of {row['run']} differ"
        if row["differ"]
        else f"the trees of {row['run']} are the same"
        for row in rows
    ]
    reading = f"Asked for the same as {baseline}: {'; '.join(sentences)}."
    return Figure("trees-compared", f"Trees against {baseline}", reading, rows)


def _parting(trees: Trees, names: Sequence[str]) -> str | None:
    """The place from which the first of the trees that differ is another."""
    first = trees.first
    if first is None:
        return "in a score, by rounding" if trees.differ else None
    tokens = [
        f"{'the end' if token is None else token} in {name}"
        for token, name in zip(first.ids, names, strict=True)
    ]
    node = ".".join(map(str, first.node))
    return f"at problem {first.problem}, step {node}, token {first.token}: {', '.join(tokens)}"


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
    least, most = {"datum": min(tokens), "scale": scale}, {"datum": max(tokens)}
    dashed: Spec = {"strokeDash": [4, 4], "color": SKY}
    equal = mark("rule", dashed, x=least, x2=most, y=least, y2=most)
    hues = {"domain": outcomes, "range": [_RIGHT_IN[each] for each in outcomes]}
    dots = mark(
        "point",
        {"filled": True, "size": 45, "tooltip": ALL_FIELDS},
        x=field("baseline tokens:Q", title=f"tokens in {names[0]}", **axis),
        y=field("tokens:Q", title=f"tokens in {names[1]}", **axis),
        color=field("right in:N", title="right in", scale=hues, legend=legend(outcomes)),
    )
    cheaper = sum(
        theirs[problem].search_tokens < ours[problem].search_tokens for problem in pair.common
    )
    thinning = f"{len(rows):,} of {len(pair.common):,} problems are drawn, evenly taken."
    return Figure(
        f"by-problem-{place}",
        f"Problem by problem: {names[1]}",
        f"{names[1]} takes fewer tokens than {names[0]} on {cheaper:,} of {len(pair.common):,} "
        f"problems (below the dashed line). {len(pair.only_other):,} only it has right, "
        f"{len(pair.only_baseline):,} only {names[0]}.",
        rows,
        spec(layers(equal, dots), 300),
        notes=[thinning] if len(rows) < len(pair.common) else [],
    )


def disagreements(
    pair: Pair, runs: tuple[Run, Run], names: tuple[str, str], place: int
) -> Figure | None:
    """The problems that only one of the two has right, as a table; None if there are none."""
    disputed = [(problem, names[0]) for problem in pair.only_baseline]
    disputed += [(problem, names[1]) for problem in pair.only_other]
    if not disputed:
        return None
    rows: list[TableRow] = []
    for problem, right_in in disputed[:MOST_ROWS]:
        row: TableRow = {"problem": problem, "right in": right_in}
        row["level"] = runs[0].totals.problems[problem].level
        for run, name in zip(runs, names, strict=True):
            row[f"answer in {name}"] = run.totals.problems[problem].answers.get(run.config.vote)
        rows.append(row)
    more = len(disputed) - len(rows)
    return Figure(
        f"disagreements-{place}",
        f"Disagreements: {names[1]}",
        f"{len(disputed):,} of {pair.judged:,} problems are right in one of the two only: "
        f"{len(pair.only_baseline):,} in {names[0]}, {len(pair.only_other):,} in {names[1]}.",
        rows,
        notes=[f"{more:,} more are left out."] if more else [],
    )
