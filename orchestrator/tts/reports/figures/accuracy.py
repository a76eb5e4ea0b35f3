"""Figures of how right a run is: by level, by rule, over n, and what the verifier's scores tell."""

from __future__ import annotations

import altair as alt

from tts.runs import curves
from tts.runs.run import Run
from tts.runs.statistics import wilson

from .charts import (
    ALL_FIELDS,
    BLUE,
    GREEN,
    PERCENT,
    VERMILLION,
    bars_height,
    chart,
    doubling_axis,
    intervals,
    line,
    percent,
    spec,
)
from .figure import Figure, Spec, TableRow
from .results import RULE_NAMES

_UNIT = alt.Scale(domain=[0, 1], padding=10)


def by_level(run: Run) -> Figure | None:
    """Accuracy by level, with 95% intervals; None without levels."""
    levels: dict[str, list[bool]] = {}
    for problem in run.totals.judged():
        if problem.level is not None:
            levels.setdefault(str(problem.level), []).append(problem.right(run.config.vote))
    if not levels:
        return None
    order = sorted(levels, key=lambda level: (len(level), level))
    rows = [_share_row("level", level, levels[level]) for level in order]
    told = ", ".join(f"{_share(row)} at level {row['level']}" for row in (rows[0], rows[-1]))
    return Figure(
        "accuracy-by-level",
        "Accuracy by level",
        f"{percent(run.accuracy)} of {len(run.totals.judged()):,} problems are right, {told}.",
        rows,
        _shares_spec("level", order),
        notes=["Bars are 95% intervals (Wilson)."],
    )


def by_rule(run: Run) -> Figure | None:
    """Accuracy by each vote over the same completions, and pass@n; None without references."""
    judged = run.totals.judged()
    seen = {rule for problem in judged for rule in problem.correct or {}}
    rules = [rule for rule in RULE_NAMES if rule in seen]
    if not rules:
        return None
    rows = [_share_row("rule", RULE_NAMES[rule], [p.right(rule) for p in judged]) for rule in rules]
    rows.append(_share_row("rule", "any (pass@n)", [bool(p.any_correct) for p in judged]))
    return Figure(
        "accuracy-by-rule",
        "Accuracy by rule",
        f"Chosen by the {RULE_NAMES.get(run.config.vote, '')}, {percent(run.accuracy)} of the "
        f"answers are right; a right one is among the completions of {_share(rows[-1])} of the "
        "problems.",
        rows,
        _shares_spec("rule", [str(row["rule"]) for row in rows]),
        notes=["Bars are 95% intervals (Wilson); all rules choose among the same completions."],
    )


def pass_over_k(run: Run) -> Figure | None:
    """pass@k over k; None unless the completions are two or more independent parts."""
    shares = curves.pass_over_k(run.config, run.totals)
    if len(shares) < 2:
        return None
    rows: list[TableRow] = [{"k": k, "pass@k": round(share, 4)} for k, share in shares.items()]
    first, last = (
        f"{row['k']} of the completions for {_share(row, 'pass@k')}" for row in (rows[0], rows[-1])
    )
    drawn = line(
        doubling_axis("k", "completions (k)"),
        alt.Y("pass@k:Q", axis=PERCENT, scale=alt.Scale(zero=False, nice=False, padding=12)),
    )
    return Figure(
        "pass-at-k",
        "pass@k over k",
        f"A right answer is among {first} of the problems, among {last}.",
        rows,
        spec(drawn, 220),
        notes=["Unbiased estimator of Chen et al. (2021)."],
    )


def scores(run: Run) -> Figure | None:
    """Score distributions of right and wrong completions; None unless both were scored."""
    found = run.totals.calibration
    if found.auroc is None:
        return None
    rows: list[TableRow] = [
        {
            "from score": part.low,
            "to score": part.high,
            "completions": kind,
            "count": count,
            "share": round(count / total, 4),
        }
        for part in found.bins(20)
        for kind, count, total in (
            ("right", part.right, found.right),
            ("wrong", part.wrong, found.wrong),
        )
    ]
    hues = alt.Scale(domain=["right", "wrong"], range=[GREEN, VERMILLION])
    drawn = chart().mark_bar(opacity=0.6, tooltip=ALL_FIELDS)
    drawn = drawn.encode(
        x=alt.X("from score:Q", bin="binned", title="score of the completion"),
        x2="to score:Q",
        y=alt.Y("share:Q", title="share of its kind", axis=PERCENT, stack=None),
        color=alt.Color("completions:N", title=None, scale=hues, legend=alt.Legend(orient="top")),
    )
    return Figure(
        "scores",
        "Scores of right and wrong completions",
        f"A right completion is scored above a wrong one in {percent(found.auroc)} of all pairs "
        f"(AUROC; 50% would be chance), over {found.right:,} right and {found.wrong:,} wrong ones.",
        rows,
        spec(drawn, 220),
        notes=_unscored(run),
    )


def calibration(run: Run) -> Figure | None:
    """Share of right completions by score; None unless right and wrong ones were scored."""
    found = run.totals.calibration
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
                "within the noise": low <= part.mean_score <= high,
            }
        )
    off = sum(not row["within the noise"] for row in rows)
    return Figure(
        "calibration",
        "Calibration of the verifier",
        f"Over {total:,} completions the score is {100 * error:.1f} points away from the share "
        f"that is right (expected calibration error over 10 bins); {off} of {len(rows)} bins are "
        "off beyond the noise.",
        rows,
        _calibration_spec(),
        notes=[
            "On the dashed line a score is the chance of being right. Lines are 95% intervals "
            "(Wilson), too narrow where completions of a problem are alike; a dot is as large as "
            "its bin is full.",
            *_unscored(run),
        ],
    )


def _calibration_spec() -> Spec:
    """The share that is right over the score: a dot for each bin, as large as it is full."""

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="share right", axis=PERCENT, scale=_UNIT)

    x = alt.X("mean score:Q", title="score", scale=_UNIT)
    full = alt.Size(
        "completions:Q",
        scale=alt.Scale(type="sqrt", range=[15, 300]),
        legend=alt.Legend(orient="top", tickCount=3),
    )
    ideal = chart().mark_rule(strokeDash=[4, 4], color=VERMILLION)
    dots = chart().mark_point(filled=True, color=BLUE, tooltip=ALL_FIELDS)
    drawn = alt.layer(
        ideal.encode(
            x=alt.XDatum(0, title="score"),
            x2=alt.X2Datum(1),
            y=alt.YDatum(0, title="share right"),
            y2=alt.Y2Datum(1),
        ),
        chart().mark_rule(color=BLUE).encode(x=x, y=y("low"), y2="high"),
        dots.encode(x=x, y=y("share right"), size=full),
    )
    return spec(drawn, 240)


def _share_row(column: str, name: str, right: list[bool]) -> TableRow:
    share = sum(right) / len(right)
    low, high = wilson(share, len(right))
    return {
        column: name,
        "accuracy": round(share, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "right": sum(right),
        "problems": len(right),
    }


def _shares_spec(column: str, order: list[str]) -> Spec:
    y = alt.Y(f"{column}:N", title=column, sort=order)
    drawn = intervals("accuracy", y, scale=_UNIT, axis=PERCENT, title="accuracy")
    return spec(drawn, bars_height(len(order)))


def _unscored(run: Run) -> list[str]:
    count = run.totals.calibration.without_score
    return [f"{count:,} completions without a score are left out."] if count else []


def _share(row: TableRow, column: str = "accuracy") -> str:
    return percent(float(row[column] or 0.0))
