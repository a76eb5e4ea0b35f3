"""Figures of how right a run is: by level, by rule, over n, and what the verifier's scores tell."""

from __future__ import annotations

import altair as alt

from tts.runs.curves import unit_size, why_dependent
from tts.runs.measured_run import MeasuredRun
from tts.runs.statistics import mean_pass_at_k, wilson

from ..runs import RULE_NAMES
from .charts import (
    ALL_FIELDS,
    BLUE,
    GREEN,
    PERCENT,
    VERMILLION,
    bars_height,
    chart,
    intervals,
    percent,
    spec,
)
from .figure import Figure, Spec, TableRow

FEW = 20
"""With fewer completions there is no verdict."""


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
    said = ", ".join(f"{_share(row)} at level {row['level']}" for row in (rows[0], rows[-1]))
    return Figure(
        "accuracy-by-level",
        "Accuracy by level",
        f"{percent(run.accuracy)} of {len(run.measures.judged()):,} problems are right, {said}. "
        "Bars are 95% intervals (Wilson): levels whose bars overlap are not told apart.",
        rows,
        _shares_spec("level", "level", order),
    )


def by_rule(run: MeasuredRun) -> Figure | None:
    """Accuracy by each vote over the same completions, and pass@n; None without references."""
    judged = run.measures.judged()
    seen = {rule for problem in judged for rule in problem.correct or {}}
    rules = [rule for rule in RULE_NAMES if rule in seen] + sorted(seen - RULE_NAMES.keys())
    if not rules:
        return None
    count = len(judged)
    rows = [
        _share_row("rule", _named(rule), sum(p.right(rule) for p in judged), count)
        for rule in rules
    ]
    any_right = sum(bool(p.any_correct) for p in judged)
    rows.append(_share_row("rule", "any (pass@n)", any_right, count))
    return Figure(
        "accuracy-by-rule",
        "Accuracy by rule",
        f"Chosen by the {_named(run.rule)}, {percent(run.accuracy)} of the answers are right; a "
        f"right one is among the completions of {percent(any_right / count)} of the problems. The "
        "difference is lost by the choice, the rest by the search.",
        rows,
        _shares_spec("rule", None, [str(row["rule"]) for row in rows]),
        notes=[
            "Each rule chooses among the same completions, so the intervals are not "
            "independent; tts report RUN RUN gives paired differences."
        ],
    )


def pass_over_k(run: MeasuredRun) -> Figure | None:
    """pass@k over k; None unless the completions are two or more independent parts."""
    strategy, parameters = run.config.strategy, run.config.parameters
    if why_dependent(strategy, limited=bool(run.config.limits)):
        return None
    n, unit = parameters["n"], unit_size(strategy, parameters)
    counts = run.measures.right_units(n, unit)
    most = n // unit
    if most < 2 or not counts:
        return None
    sizes = sorted({2**power for power in range(most.bit_length())} | {most})
    rows: list[TableRow] = []
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
    rows: list[TableRow] = []
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
    if found.auroc is None:
        return None
    rows: list[TableRow] = []
    error, total = 0.0, found.right + found.wrong
    for part in found.bins(10):
        if part.share_right is None or part.mean_score is None:
            continue
        count = part.right + part.wrong
        low, high = wilson(part.share_right, count)
        error += abs(part.mean_score - part.share_right) * count / total
        rows.append(
            {
                "scores": f"{part.low:.1f} to {part.high:.1f}",
                "mean score": round(part.mean_score, 4),
                "share right": round(part.share_right, 4),
                "low": round(low, 4),
                "high": round(high, 4),
                "completions": count,
                "the scores are": _verdict(part.mean_score, low, high, count),
            }
        )
    known = [row for row in rows if row["the scores are"] != "too few to say"]
    off = [row for row in known if row["the scores are"] != "within the noise"]
    return Figure(
        "calibration",
        "Calibration of the verifier",
        f"Over {total:,} completions the score is {100 * error:.1f} points away from the share "
        f"that is right (expected calibration error over 10 bins). Of {len(known)} bins with at "
        f"least {FEW} completions {len(off)} are off beyond the noise. On the dashed line a score "
        "is the chance of being right; below it the verifier is too sure.",
        rows,
        _calibration_spec(),
        notes=[
            "Lines are 95% intervals (Wilson); a dot is as large as its bin is full. Bins with "
            f"fewer than {FEW} completions are pale, and nothing is said of them.",
            "Completions of one problem are alike, so the intervals are too narrow.",
            *_unscored(run),
        ],
    )


def _verdict(score: float, low: float, high: float, count: int) -> str:
    """What the completions in a bin say of their scores, noise allowed for."""
    if count < FEW:
        return "too few to say"
    if low <= score <= high:
        return "within the noise"
    return "too high" if score > high else "too low"


def _calibration_spec() -> Spec:
    """The share that is right over the score: a dot for each bin, as large as it is full."""
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
        .mark_point(filled=True, color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=x,
            y=_share_right("share right:Q"),
            size=alt.Size(
                "completions:Q",
                scale=alt.Scale(type="sqrt", range=[15, 300]),
                legend=alt.Legend(orient="top", tickCount=3),
            ),
            opacity=alt.condition(f"datum.completions >= {FEW}", alt.value(1), alt.value(0.35)),
        )
    )
    return spec(alt.layer(ideal, bars, dots), 240)


def _named(rule: str) -> str:
    return RULE_NAMES.get(rule, rule)


def _share_right(field: str) -> alt.Y:
    return alt.Y(field, title="share right", axis=PERCENT, scale=alt.Scale(domain=[0, 1]))


def _share_row(column: str, name: str, right: int, count: int) -> TableRow:
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
    scale = alt.Scale(domain=[0, 1])

    def x(field: str) -> alt.X:
        return alt.X(field, scale=scale, axis=PERCENT, title="accuracy")

    return spec(alt.layer(*intervals("accuracy", y, x)), bars_height(len(order)))


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


def _share(row: TableRow) -> str:
    return percent(float(row["accuracy"] or 0.0))


def _part(row: TableRow) -> str:
    return percent(float(row["pass@k"] or 0.0))
