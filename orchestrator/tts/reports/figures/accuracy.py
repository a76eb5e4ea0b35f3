"""Figures of how right a run is: by level, by rule, over n, and what the verifier's scores tell."""

from __future__ import annotations

import altair as alt

from tts.runs.curves import unit_size, why_dependent
from tts.runs.measured_run import MeasuredRun
from tts.runs.statistics import mean_pass_at_k, wilson

from .charts import ALL_FIELDS, BLUE, GREEN, PERCENT, VERMILLION, bars_height, chart, percent, spec
from .figure import Figure, Row, Spec

RULES = {"best": "best score", "weighted": "weighted vote", "majority": "majority vote"}


def by_level(run: MeasuredRun) -> Figure | None:
    """Accuracy by level, with 95% intervals; None without levels."""
    levels: dict[str, list[bool]] = {}
    for problem in run.measures.judged():
        if problem.level is not None:
            levels.setdefault(str(problem.level), []).append(problem.right(run.rule))
    if not levels:
        return None
    order = sorted(levels, key=lambda level: (len(level), level))
    rows = [_share_row("level", level, sum(levels[level]), len(levels[level])) for level in order]
    worst = min(rows, key=lambda row: float(row["accuracy"] or 0.0))
    best = max(rows, key=lambda row: float(row["accuracy"] or 0.0))
    return Figure(
        "accuracy-by-level",
        "Accuracy by level",
        f"{percent(run.accuracy)} of {len(run.measures.judged()):,} problems are right: from "
        f"{_share(best)} at level {best['level']} down to {_share(worst)} at level "
        f"{worst['level']}. Bars are 95% intervals (Wilson).",
        rows,
        _shares_spec("level", "level", order),
    )


def by_rule(run: MeasuredRun) -> Figure | None:
    """Accuracy by each vote over the same completions, and pass@n; None without references."""
    judged = run.measures.judged()
    seen = {rule for problem in judged for rule in problem.correct or {}}
    rules = [rule for rule in RULES if rule in seen] + sorted(seen - RULES.keys())
    if not rules:
        return None
    count = len(judged)
    rows = [
        _share_row("rule", _named(rule), sum(p.right(rule) for p in judged), count)
        for rule in rules
    ]
    any_right = sum(bool(p.any_correct) for p in judged)
    rows.append(_share_row("rule", "any (pass@n)", any_right, count))
    lost = any_right - sum(problem.right(run.rule) for problem in judged)
    return Figure(
        "accuracy-by-rule",
        "Accuracy by rule",
        f"Chosen by the {_named(run.rule)}, {percent(run.accuracy)} of the answers are right; a "
        f"right one is among the completions of {percent(any_right / count)} of the problems. So "
        f"{lost:,} {'problem is' if lost == 1 else 'problems are'} lost by the choice, and "
        f"{count - any_right:,} by the search.",
        rows,
        _shares_spec("rule", None, [str(row["rule"]) for row in rows]),
        notes=[
            "Each rule chooses among the same completions, so the intervals are not "
            "independent; tts compare gives paired differences."
        ],
    )


def pass_over_k(run: MeasuredRun) -> Figure | None:
    """pass@k over k; None unless the completions are two or more independent parts."""
    strategy, parameters = run.config.strategy, run.config.parameters
    if why_dependent(strategy, parameters, limited=bool(run.config.limits)):
        return None
    unit = unit_size(strategy, parameters)
    counts = run.measures.right_units(parameters["n"], unit)
    most = parameters["n"] // unit
    if most < 2 or not counts:
        return None
    sizes = sorted({2**power for power in range(most.bit_length())} | {most})
    rows: list[Row] = []
    for size in sizes:
        share = mean_pass_at_k(counts, size)
        if share is not None:
            rows.append({"k": size * unit, "pass@k": round(share, 4)})
    first, last = rows[0], rows[-1]
    drawn = (
        chart()
        .mark_line(point=True, color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("k:Q", title="completions (k)", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("pass@k:Q", axis=PERCENT, scale=alt.Scale(zero=False)),
        )
    )
    return Figure(
        "pass-at-k",
        "pass@k over k",
        f"A right answer is among {first['k']} of the completions for {_part(first)} of the "
        f"problems, among {last['k']} for {_part(last)}: no vote or verifier can do better.",
        rows,
        spec(drawn, 220),
        notes=["Unbiased estimator of Chen et al. (2021)."],
    )


def scores(run: MeasuredRun) -> Figure | None:
    """Score distributions of right and wrong completions; None unless both were scored."""
    found = run.measures.calibration
    if found.auroc is None:
        return None
    rows: list[Row] = []
    for part in found.bins(20):
        for kind, count, total in (
            ("right", part.right, found.right),
            ("wrong", part.wrong, found.wrong),
        ):
            rows.append(
                {
                    "from score": part.low,
                    "to score": part.high,
                    "completions": kind,
                    "count": count,
                    "share": round(count / total, 4),
                }
            )
    drawn = (
        chart()
        .mark_bar(opacity=0.6, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("from score:Q", bin="binned", title="score of the completion"),
            x2="to score:Q",
            y=alt.Y("share:Q", title="share of its kind", axis=PERCENT, stack=None),
            color=_right_wrong(),
        )
    )
    return Figure(
        "scores",
        "Scores of right and wrong completions",
        f"A right completion is scored above a wrong one in {percent(found.auroc)} of all pairs "
        f"(AUROC; 50% would be chance), over {found.right:,} right and {found.wrong:,} wrong "
        "completions. The less the two overlap, the better the verifier can choose.",
        rows,
        spec(drawn, 220),
        notes=_unscored(run),
    )


def calibration(run: MeasuredRun) -> Figure | None:
    """Share of right completions by score; None unless right and wrong ones were scored."""
    found = run.measures.calibration
    error = found.expected_error
    if found.auroc is None or error is None:
        return None
    rows: list[Row] = []
    for part in found.bins(10):
        if part.share_right is not None and part.mean_score is not None:
            count = part.right + part.wrong
            low, high = wilson(part.share_right, count)
            rows.append(
                {
                    "mean score": round(part.mean_score, 4),
                    "share right": round(part.share_right, 4),
                    "low": round(low, 4),
                    "high": round(high, 4),
                    "completions": count,
                }
            )
    x = alt.X("mean score:Q", title="score", scale=alt.Scale(domain=[0, 1]))
    ideal = (
        chart()
        .mark_rule(strokeDash=[4, 4], color=VERMILLION)
        .encode(
            x=alt.XDatum(0, title="score"),
            x2=alt.X2Datum(1),
            y=alt.YDatum(0, title="share right"),
            y2=alt.Y2Datum(1),
        )
    )
    bars = chart().mark_rule(color=BLUE).encode(x=x, y=_share_right("low:Q"), y2="high:Q")
    dots = (
        chart()
        .mark_point(filled=True, size=60, color=BLUE, tooltip=ALL_FIELDS)
        .encode(x=x, y=_share_right("share right:Q"))
    )
    return Figure(
        "calibration",
        "Calibration of the verifier",
        f"On average the score is {100 * error:.1f} points away from the share of completions "
        "that are right (expected calibration error over 10 bins). On the dashed line a score is "
        "the chance of being right; below it the verifier is too sure.",
        rows,
        spec(alt.layer(ideal, bars, dots), 240),
        notes=[
            "Completions of one problem are alike, so the intervals are too narrow.",
            *_unscored(run),
        ],
    )


def _named(rule: str) -> str:
    return RULES.get(rule, rule)


def _share_right(field: str) -> alt.Y:
    return alt.Y(field, title="share right", axis=PERCENT, scale=alt.Scale(domain=[0, 1]))


def _share_row(column: str, name: str, right: int, count: int) -> Row:
    low, high = wilson(right / count, count)
    return {
        column: name,
        "accuracy": round(right / count, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "right": right,
        "problems": count,
    }


def _shares_spec(column: str, title: str | None, order: list[str]) -> Spec:
    y = alt.Y(f"{column}:N", title=title, sort=order)
    axis = alt.Scale(domain=[0, 1])
    intervals = (
        chart()
        .mark_bar(height=8, opacity=0.4, color=BLUE)
        .encode(x=alt.X("low:Q", scale=axis, axis=PERCENT, title="accuracy"), x2="high:Q", y=y)
    )
    dots = (
        chart()
        .mark_point(filled=True, size=70, color=BLUE, tooltip=ALL_FIELDS)
        .encode(x=alt.X("accuracy:Q", scale=axis, title="accuracy"), y=y)
    )
    return spec(alt.layer(intervals, dots), bars_height(len(order)))


def _right_wrong() -> alt.Color:
    return alt.Color(
        "completions:N",
        title=None,
        scale=alt.Scale(domain=["right", "wrong"], range=[GREEN, VERMILLION]),
        legend=alt.Legend(orient="top"),
    )


def _unscored(run: MeasuredRun) -> list[str]:
    count = run.measures.calibration.without_score
    return [f"{count:,} completions without a score are left out."] if count else []


def _share(row: Row) -> str:
    return percent(float(row["accuracy"] or 0.0))


def _part(row: Row) -> str:
    return percent(float(row["pass@k"] or 0.0))
