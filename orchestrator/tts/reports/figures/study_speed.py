"""Figures of a study: how fast, and how right, the cells were."""

from __future__ import annotations

import altair as alt

from tts.lab.study.measurement import Measurement, Row

from .charts import ALL_FIELDS, BLUE, PERCENT, bars_height, chart, number, percent, spec
from .figure import Figure
from .study_parts import (
    SHARE,
    SPEED,
    distinct,
    doubling_axis,
    engine_colour,
    figure_of,
    is_certain,
    share_axis,
    speeds_over,
    times,
    value,
)

_TOKENS = "generated tokens per problem"


def throughput_by_split(measured: Measurement) -> Figure:
    """Problems per second against the division of the KV memory."""
    deployed = next(row for row in measured.rows if row["deployed"])
    others = [row for row in measured.rows if row is not deployed]
    best = max(others, key=lambda row: value(row, "speed"))
    reading = (
        f"As deployed the generator has {percent(value(deployed, SHARE))} of the KV memory, and "
        f"the pair solves {number(value(deployed, 'problems/s'))} problems/s. The fastest other "
        f"division gives it {percent(value(best, SHARE))} and is {times(best)}"
    )
    slowest = min(others, key=lambda row: value(row, "speed"))
    if slowest is not best:
        reading += f", the slowest {percent(value(slowest, SHARE))}: {times(slowest)}"
    title = "Throughput against the division of the KV memory"
    return figure_of(measured, title, f"{reading}.", spec(speeds_over(share_axis()), 260))


def ablation(measured: Measurement) -> Figure:
    """What schedules, speculation and caches do to throughput."""
    base, *others = measured.rows
    slower = [row for row in others if is_certain(row) and value(row, "speed") < 1]
    faster = [row for row in others if is_certain(row) and value(row, "speed") > 1]
    reading = (
        f"The deployment as it is solves {number(value(base, 'problems/s'))} problems/s. "
        + _listed("Faster beyond the noise", faster)
        + _listed("Slower beyond the noise", slower)
    )
    if untold := len(others) - len(slower) - len(faster):
        reading += f"{untold} of {len(others)} changes are not told apart from it."
    y = alt.Y("changed:N", title=None, sort=None, axis=alt.Axis(labelLimit=240))
    x = alt.X("speed:Q", title=SPEED, scale=alt.Scale(zero=False))
    drawn = alt.layer(
        chart().mark_rule(opacity=0.6).encode(x=alt.X("low:Q", title=SPEED), x2="high:Q", y=y),
        chart().mark_point(filled=True, size=80, color=BLUE, tooltip=ALL_FIELDS).encode(x=x, y=y),
    )
    height = bars_height(len(measured.rows))
    title = "Schedules, speculation and caches"
    return figure_of(measured, title, reading.strip(), spec(drawn, height))


def concurrency(measured: Measurement) -> Figure:
    """Throughput against the problems in flight."""
    first = next(row for row in measured.rows if row["limited"])
    free = next(row for row in measured.rows if not row["limited"])
    low, high = first["low"], first["high"]
    known = (
        f" ({1 / high:.2f} to {1 / low:.2f})"
        if isinstance(low, int | float) and isinstance(high, int | float) and low > 0
        else " (one round: no interval)"
    )
    reading = (
        f"With {first['problems in flight']} at a time the pair solves "
        f"{number(value(first, 'problems/s'))} problems/s, each in {_seconds(first)}; without a "
        f"limit {number(value(free, 'problems/s'))}, each in {_seconds(free)}: "
        f"{number(1 / value(first, 'speed'))} times the throughput{known}."
    )
    drawn = speeds_over(doubling_axis("problems in flight", "problems in flight"))
    title = "Throughput against the problems in flight"
    return figure_of(measured, title, reading, spec(drawn, 260))


def accuracy_by_n(measured: Measurement) -> Figure:
    """Accuracy over the number of completions."""
    first, last = measured.rows[0], measured.rows[-1]
    reading = (
        f"n = {first['n']} answers {_right(first)} right, n = {last['n']} {_right(last)}, at "
        f"{number(value(last, _TOKENS) / value(first, _TOKENS))} times the generated tokens."
    )
    x = doubling_axis("n", "completions (n)")
    y = alt.Y("accuracy:Q", axis=PERCENT, scale=alt.Scale(zero=False))
    low = alt.Y("low:Q", title="accuracy")
    drawn = alt.layer(
        chart().mark_rule(opacity=0.5).encode(x=x, y=low, y2="high:Q"),
        chart().mark_line(color=BLUE, point=True, tooltip=ALL_FIELDS).encode(x=x, y=y),
    )
    return figure_of(measured, "Accuracy over n", reading, spec(drawn, 260))


def prefix_hits(measured: Measurement) -> Figure:
    """The prefix hit rate of both engines against the division."""
    title = "Prefix hits against the division of the KV memory"
    found = "share of prompt blocks found in the cache"
    return _over_pools(measured, title, "hit rate", found, "are found in the cache")


def thrashing(measured: Measurement) -> Figure:
    """Cache thrashing of both engines against the division."""
    title = "Cache thrashing against the division of the KV memory"
    again = "share of prompt blocks computed again"
    what = "had been in the cache, were evicted, and are computed again"
    return _over_pools(measured, title, "thrashing", again, what)


def _over_pools(measured: Measurement, title: str, name: str, axis: str, what: str) -> Figure:
    """A rate of both engines over the shares, a line for each size of the memory."""
    engines, memories = distinct(measured, "engine"), distinct(measured, "KV memory")
    said = []
    for memory in (memories[0], memories[-1]):
        ranges = []
        for engine in engines:
            rates = [
                value(row, name)
                for row in measured.rows
                if (row["engine"], row["KV memory"]) == (engine, memory)
            ]
            least, most = percent(min(rates)), percent(max(rates))
            rates_said = least if least == most else f"{least} to {most}"
            ranges.append(f"{rates_said} of the {engine}'s")
        said.append(f"with {memory} of the deployed KV memory {' and '.join(ranges)}")
    reading = f"Of the blocks of prompts, {'; '.join(dict.fromkeys(said))} {what}."
    dashes = alt.StrokeDash(
        "KV memory:N",
        sort=memories,
        title="KV memory, of the deployed",
        legend=alt.Legend(orient="top"),
    )
    y = alt.Y(f"{name}:Q", title=axis, axis=PERCENT)
    tint = engine_colour(engines)
    drawn = alt.layer(
        chart().mark_line().encode(x=share_axis(), y=y, color=tint, strokeDash=dashes),
        chart()
        .mark_point(filled=True, tooltip=ALL_FIELDS)
        .encode(x=share_axis(), y=y, color=tint, detail="KV memory:N"),
    )
    return figure_of(measured, title, reading, spec(drawn, 260))


def _listed(what: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    said = ", ".join(f"{row['changed']} ({value(row, 'speed'):.2f}x)" for row in rows)
    return f"{what}: {said}. "


def _right(row: Row) -> str:
    """An accuracy with its interval."""
    share, low, high = (percent(value(row, name)) for name in ("accuracy", "low", "high"))
    return f"{share} ({low} to {high})"


def _seconds(row: Row) -> str:
    found = row["s per problem (median)"]
    return f"{number(found)} s" if isinstance(found, int | float) else "an unknown time"
