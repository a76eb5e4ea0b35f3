"""The figures of a study: how fast and how right its cells were, and what the engines did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import altair as alt

from tts.lab.study.folder import Measurement

from .charts import (
    ALL_FIELDS,
    BLUE,
    PERCENT,
    bars_height,
    chart,
    colour,
    number,
    percent,
    spec,
    tint,
)
from .figure import Figure, Spec, TableRow

SHARE = "generator share"
SPEED = "throughput, times as deployed"


def figure_of(measured: Measurement, title: str, reading: str, drawn: Spec) -> Figure:
    """A measurement as a figure."""
    return Figure(
        measured.name, title, reading, measured.rows, drawn, measured.origin, measured.notes
    )


def share_axis() -> alt.X:
    """The division of the KV memory."""
    return alt.X(
        f"{SHARE}:Q",
        title="the generator's share of the KV memory",
        axis=PERCENT,
        scale=alt.Scale(domain=[0, 1]),
    )


def doubling_axis(field: str, title: str) -> alt.X:
    """A count that is measured at powers of two."""
    scale = alt.Scale(type="log", base=2, nice=False, padding=15)
    axis = alt.Axis(format=",~r", tickCount=6)  # more are not at powers of two
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=axis)


def speeds_over(x: alt.X) -> alt.LayerChart | alt.FacetChart:
    """Throughput over that of the base, with its intervals."""
    y = alt.Y("speed:Q", title=SPEED, scale=alt.Scale(zero=False))
    return alt.layer(
        chart().mark_rule(opacity=0.5).encode(x=x, y=alt.Y("low:Q", title=SPEED), y2="high:Q"),
        chart().mark_line(color=BLUE).encode(x=x, y=y),
        chart().mark_point(filled=True, size=70, color=BLUE, tooltip=ALL_FIELDS).encode(x=x, y=y),
    )


def value(row: TableRow, name: str) -> float:
    """A number of a row."""
    found = row[name]
    assert isinstance(found, int | float), f"{name} is {found!r}"
    return found


def distinct(measured: Measurement, name: str) -> list[str]:
    """The texts in a column, each once, in their order."""
    return list(dict.fromkeys(str(row[name]) for row in measured.rows))


def is_certain(row: TableRow) -> bool:
    """Whether the interval of a row's speed leaves out 1."""
    low, high = row["low"], row["high"]
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return not low <= 1 <= high


def times(row: TableRow) -> str:
    """A row's speed in words."""
    if row["low"] is None:
        return f"{value(row, 'speed'):.2f} times as fast"
    low, high = value(row, "low"), value(row, "high")
    return f"{value(row, 'speed'):.2f} times as fast ({low:.2f} to {high:.2f})"


_TOKENS = "generated tokens per problem"


def throughput_by_split(measured: Measurement) -> Figure:
    """Problems per second against the division of the KV memory."""
    deployed = next(row for row in measured.rows if row["deployed"])
    others = [row for row in measured.rows if row is not deployed]
    best = max(others, key=lambda row: value(row, "speed"))
    reading = (
        f"As deployed the generator has {percent(value(deployed, SHARE))} of the KV memory, and "
        f"the pair solves {number(value(deployed, 'problems/s'))} problems/s. The fastest other "
        f"division gives it {percent(value(best, SHARE))} and is {times(best)}."
    )
    title = "Throughput against the division of the KV memory"
    return figure_of(measured, title, reading, spec(speeds_over(share_axis()), 260))


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
    reading = (
        f"With {first['problems in flight']} at a time the pair solves "
        f"{number(value(first, 'problems/s'))} problems/s, each in {_seconds(first)}; without a "
        f"limit {number(value(free, 'problems/s'))}, each in {_seconds(free)}: "
        f"{number(1 / value(first, 'speed'))} times the throughput."
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
    for engine in engines:
        rates = [value(row, name) for row in measured.rows if row["engine"] == engine]
        said.append(f"{percent(min(rates))} to {percent(max(rates))} of the {engine}'s")
    reading = f"Over all divisions and sizes, {' and '.join(said)} blocks of prompts {what}."
    dashes = alt.StrokeDash(
        "KV memory:N",
        sort=memories,
        title="KV memory, of the deployed",
        legend=alt.Legend(orient="top"),
    )
    y = alt.Y(f"{name}:Q", title=axis, axis=PERCENT)
    hue = tint("engine", engines)
    drawn = alt.layer(
        chart().mark_line().encode(x=share_axis(), y=y, color=hue, strokeDash=dashes),
        chart()
        .mark_point(filled=True, tooltip=ALL_FIELDS)
        .encode(x=share_axis(), y=y, color=hue, detail="KV memory:N"),
    )
    return figure_of(measured, title, reading, spec(drawn, 260))


def _listed(what: str, rows: list[TableRow]) -> str:
    if not rows:
        return ""
    said = ", ".join(f"{row['changed']} ({value(row, 'speed'):.2f}x)" for row in rows)
    return f"{what}: {said}. "


def _right(row: TableRow) -> str:
    """An accuracy with its interval."""
    share, low, high = (percent(value(row, name)) for name in ("accuracy", "low", "high"))
    return f"{share} ({low} to {high})"


def _seconds(row: TableRow) -> str:
    found = row["s per problem (median)"]
    return f"{number(found)} s" if isinstance(found, int | float) else "an unknown time"


_UTILISATION, _REQUESTS = "batch utilisation", "requests per step"


def memory_by_split(measured: Measurement) -> Figure:
    """Memory by part against the division of the KV memory."""
    parts = distinct(measured, "part")
    first = measured.rows[0][SHARE]
    here = [row for row in measured.rows if row[SHARE] == first]
    total = sum(value(row, "MiB") for row in here)
    pools = sum(value(row, "MiB") for row in here if str(row["part"]).endswith("KV pool"))
    reading = (
        f"Of {number(total)} MiB that the pair takes, {number(pools)} are KV pools, which the "
        "engines divide."
    )
    drawn = (
        chart()
        .mark_area(tooltip=ALL_FIELDS)
        .encode(
            x=share_axis(),
            y=alt.Y("MiB:Q", title="MiB", stack="zero"),
            color=tint("part", parts).sort(parts),
        )
    )
    return figure_of(measured, "Memory by component", reading, spec(drawn, 260))


def kv_blocks(measured: Measurement) -> Figure:
    """KV blocks in use over an engine's steps under two divisions."""
    engine = measured.rows[0]["engine"]
    divisions = distinct(measured, "division")
    said = []
    for division in divisions:
        rows = [row for row in measured.rows if row["division"] == division]
        most = max(value(row, "blocks in use") for row in rows)
        pool = value(rows[0], "pool")
        said.append(f"{division} {number(most)} of {number(pool)} ({percent(most / pool)})")
    legend = alt.Legend(orient="top", columns=1, labelLimit=0)
    hue = alt.Color("division:N", title=None, scale=colour(divisions), legend=legend)
    x = alt.X("step:Q", title="engine step", scale=alt.Scale(nice=False))
    drawn = alt.layer(
        chart()
        .mark_line(interpolate="step-after", tooltip=ALL_FIELDS)
        .encode(x=x, y=alt.Y("blocks in use:Q"), color=hue),
        chart()
        .mark_line(strokeDash=[2, 4], opacity=0.7)
        .transform_filter("datum.pool <= 4 * datum['most in use']")
        .encode(x=x, y=alt.Y("pool:Q", title="blocks in use"), color=hue),
    )
    reading = f"Most blocks in use on the {engine}: {', '.join(said)}."
    return figure_of(measured, f"KV blocks in use on the {engine}", reading, spec(drawn, 220))


def batch_utilisation(measured: Measurement) -> Figure:
    """How full the batches were, by schedule."""
    engines = distinct(measured, "engine")
    said = []
    for engine in engines:
        rows = sorted(
            (row for row in measured.rows if row["engine"] == engine),
            key=lambda row: value(row, _UTILISATION),
        )
        least, most = rows[0], rows[-1]
        said.append(
            f"A step of the {engine} held {number(value(least, _REQUESTS))} requests "
            f"({least['schedule']}) to {number(value(most, _REQUESTS))} ({most['schedule']}), "
            f"{percent(value(most, _UTILISATION))} of its batch."
        )
    title = "mean requests per step, of max_batch_size"
    drawn = (
        chart()
        .mark_bar(tooltip=ALL_FIELDS)
        .encode(
            y=alt.Y("schedule:N", title=None, sort=None, axis=alt.Axis(labelLimit=240)),
            yOffset=alt.YOffset("engine:N", sort=engines),
            x=alt.X(f"{_UTILISATION}:Q", title=title, axis=PERCENT),
            color=tint("engine", engines),
        )
    )
    height = bars_height(len(measured.rows))
    return figure_of(measured, "Batch utilisation", " ".join(said), spec(drawn, height))


def tokens_per_request(measured: Measurement) -> Figure:
    """Tokens scheduled per request of both engines."""
    engines = distinct(measured, "engine")
    said = []
    for engine in engines:
        rows = [row for row in measured.rows if row["engine"] == engine]
        count = sum(value(row, "requests") for row in rows)
        low, high = value(rows[0], "from tokens"), value(rows[-1], "to tokens")
        said.append(f"the {engine} {number(count)} of {number(low)} to {number(high)} tokens")
    reading = f"Requests by their tokens, prompt and generated ones: {'; '.join(said)}."
    scale = alt.Scale(type="log")
    drawn = (
        chart()
        .mark_bar(opacity=0.7, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("from tokens:Q", bin="binned", title="tokens of a request", scale=scale),
            x2="to tokens:Q",
            y=alt.Y("requests:Q", stack=None),
            color=tint("engine", engines),
        )
    )
    return figure_of(measured, "Tokens scheduled per request", reading, spec(drawn, 220))


def by_load(measured: Measurement) -> Figure:
    """Throughput of an engine over the load in flight."""
    rows = measured.rows
    engine, unit = rows[0]["engine"], rows[0]["unit"]
    best = max(value(row, "tokens/s") for row in rows)
    point = rows[0]["saturation point"]
    where = (
        f"95% of it from {point:,.0f} {unit} in flight on"
        if isinstance(point, int | float)
        else "no saturation point was seen"
    )
    reading = f"The {engine} alone does {number(best)} tokens/s at best; {where}."
    x = doubling_axis("in flight", f"{unit} in flight")
    drawn = alt.layer(
        chart()
        .mark_rule(opacity=0.5)
        .encode(x=x, y=alt.Y("lowest:Q", title="tokens/s"), y2="highest:Q"),
        chart()
        .mark_line(point=True, color=BLUE, tooltip=ALL_FIELDS)
        .encode(x=x, y=alt.Y("tokens/s:Q", title="tokens/s")),
    )
    return figure_of(measured, f"Throughput of the {engine} over load", reading, spec(drawn, 220))


FIGURES: Mapping[str, Callable[[Measurement], Figure]] = {
    "memory-by-split": memory_by_split,
    "throughput-by-split": throughput_by_split,
    "kv-blocks-generator": kv_blocks,
    "kv-blocks-verifier": kv_blocks,
    "prefix-hits-by-split": prefix_hits,
    "thrashing-by-split": thrashing,
    "tokens-per-request": tokens_per_request,
    "generator-by-load": by_load,
    "verifier-by-load": by_load,
    "batch-utilisation": batch_utilisation,
    "ablation": ablation,
    "concurrency": concurrency,
    "accuracy-by-n": accuracy_by_n,
}
"""In the order of the page."""


def study_figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """A figure for each measurement, in a fixed order."""
    by_name = {measurement.name: measurement for measurement in measurements}
    return [draw(by_name[name]) for name, draw in FIGURES.items() if name in by_name]
