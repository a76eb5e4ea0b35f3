"""The figures of strategies at equal cost: accuracy over what a problem took, seeds together."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from tts.runs.compare import Row as Compared
from tts.runs.pooled import Gain, Pooled, best_at, pool

from .charts import ALL_FIELDS, LOGARITHMIC, PERCENT, chart, number, percent, spec, tint
from .figure import Figure, Row

_TITLES = {
    "tokens": "mean generated tokens of a problem",
    "seconds": "mean seconds from the start of a problem to its answer",
}
_UNITS = {"budget_tokens": "tokens", "deadline_s": "seconds"}


def are_at_equal_cost(rows: Sequence[Compared]) -> bool:
    """Whether these figures say more of runs than each run by itself: fitted n, several seeds."""
    return any(row.budget for row in rows) or len({row.seed for row in rows}) > 1


def equal_cost_figures(rows: Sequence[Compared], notes: Sequence[str]) -> list[Figure]:
    """Accuracy over tokens and over seconds, a line for each strategy."""
    pooled = pool(rows)
    if len({each.name for each in pooled}) < 2:
        return []
    return [
        _figure(pooled, cost, notes)
        for cost in _TITLES
        if all(_cost(each, cost) is not None for each in pooled)
    ]


def _figure(pooled: Sequence[Pooled], cost: str, notes: Sequence[str]) -> Figure:
    best = best_at(pooled)
    budgets = list(dict.fromkeys(name for each in pooled for name, _ in each.budget))
    table = [_row(each, best[each.budget], budgets, cost) for each in pooled]
    names = list(dict.fromkeys(each.name for each in pooled))
    scale = alt.Scale(type="log", nice=False, padding=15)
    x = alt.X(f"{cost}:Q", title=_TITLES[cost], scale=scale, axis=LOGARITHMIC)
    colours = tint("strategy", names)
    lines = (
        chart()
        .mark_line(point={"filled": True, "size": 60}, tooltip=ALL_FIELDS)
        .encode(x=x, y=_accuracy("accuracy:Q"), color=colours, detail="strategy:N")
    )
    bars = (
        chart()
        .mark_rule(opacity=0.35)
        .encode(x=x, y=_accuracy("low:Q"), y2="high:Q", color=colours)
    )
    seeds = len({row.seed for each in pooled for row in each.rows})
    return Figure(
        f"accuracy-over-{cost}",
        f"Accuracy over {cost}",
        " ".join(_in_words(each, pooled) for each in best.values()),
        table,
        spec(alt.layer(bars, lines), 300),
        notes=[
            "Vertical lines are 95% intervals (Wilson, by problems). Differences are paired: of "
            "the same problems, with 95% intervals, which are narrower.",
            *([f"Means over {seeds} seeds."] if seeds > 1 else []),
            *notes,
        ],
    )


def _row(each: Pooled, best: Pooled, budgets: Sequence[str], cost: str) -> Row:
    low, high = each.interval_95
    fitted = dict(each.budget)
    gain = Gain(0.0, 0.0, 0.0) if each is best else each.gain_over(best)
    return {
        "strategy": each.name,
        "n": each.n,
        **{f"budget, {_UNITS[name]}": fitted.get(name) for name in budgets},
        cost: round(_cost(each, cost) or 0.0, 4),
        "accuracy": round(each.accuracy, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "to the best": round(gain.mean, 4) if gain else None,
        "from": round(gain.low, 4) if gain else None,
        "up to": round(gain.high, 4) if gain else None,
    }


def _in_words(best: Pooled, pooled: Sequence[Pooled]) -> str:
    """The best strategy at a budget, and those that may be as good."""
    budget = ", ".join(f"{number(value, 4)} {_UNITS[name]}" for name, value in best.budget)
    gains = {
        each.name: each.gain_over(best)
        for each in pooled
        if each.budget == best.budget and each is not best
    }
    close = [name for name, gain in gains.items() if gain is not None and gain.high >= 0]
    where = f"At {budget}" if budget else "Of all"
    said = f"{where} {best.name} has most right, {percent(best.accuracy)}"
    return f"{said}; not told apart from it: {', '.join(close)}." if close else f"{said}."


def _cost(each: Pooled, cost: str) -> float | None:
    """Never 0, which no logarithmic axis shows."""
    found = each.tokens if cost == "tokens" else each.seconds
    return None if found is None else max(found, 1e-4)


def _accuracy(field: str) -> alt.Y:
    return alt.Y(field, title="accuracy", axis=PERCENT, scale=alt.Scale(zero=False))
