"""Figures of how right a run is: by level, by rule, over n, and what the verifier's scores tell."""

from __future__ import annotations

from dataclasses import replace

import altair as alt

from tts.runs import curves
from tts.runs.clustered import auroc
from tts.runs.run import Run
from tts.runs.statistics import wilson

from .charts import (
    PERCENT,
    bars_height,
    doubling_axis,
    intervals,
    line,
    percent,
    spec,
)
from .figure import Figure, Spec, TableRow
from .results import RULE_NAMES
from .verifier import reliability, score_histogram

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
    shares = ", ".join(f"{_share(row)} at level {row['level']}" for row in (rows[0], rows[-1]))
    return Figure(
        "accuracy-by-level",
        "Accuracy by level",
        f"{percent(run.accuracy)} of {len(run.totals.judged()):,} problems are right, {shares}.",
        rows,
        _shares_spec("level", order),
        notes=["Bars are 95% intervals (Wilson)."],
    )


def by_rule(run: Run) -> Figure | None:
    """Accuracy by each vote over the same completions, and pass@n; None without references."""
    judged = run.totals.judged()
    judging = {rule for problem in judged for rule in problem.correct or {}}
    rules = [rule for rule in RULE_NAMES if rule in judging]
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
    lines = line(
        doubling_axis("k", "completions (k)"),
        alt.Y("pass@k:Q", axis=PERCENT, scale=alt.Scale(zero=False, nice=False, padding=12)),
    )
    return Figure(
        "pass-at-k",
        "pass@k over k",
        f"A right answer is among {first} of the problems, among {last}.",
        rows,
        spec(lines, 220),
        notes=["Unbiased estimator of Chen et al. (2021)."],
    )


def scores(run: Run) -> Figure | None:
    """Score distributions of right and wrong completions; None unless both were scored."""
    return _with_unscored(run, score_histogram(run.totals.calibration.observations, "completions"))


def calibration(run: Run) -> Figure | None:
    """Share of right completions by score; None unless right and wrong ones were scored."""
    observations = run.totals.calibration.observations
    if auroc(observations) is None:
        return None
    return _with_unscored(run, reliability(observations, "completions"))


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
    dots = intervals("accuracy", y, scale=_UNIT, axis=PERCENT, title="accuracy")
    return spec(dots, bars_height(len(order)))


def _with_unscored(run: Run, figure: Figure | None) -> Figure | None:
    count = run.totals.calibration.without_score
    if figure is None or not count:
        return figure
    note = f"{count:,} completions without a score are left out."
    return replace(figure, notes=[*figure.notes, note])


def _share(row: TableRow, column: str = "accuracy") -> str:
    return percent(float(row[column] or 0.0))
