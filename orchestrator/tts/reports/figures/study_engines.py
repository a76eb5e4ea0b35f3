"""Figures of a study: what happens inside of the engines."""

from __future__ import annotations

import altair as alt

from tts.lab.study.measurement import Measurement

from .charts import ALL_FIELDS, BLUE, PERCENT, bars_height, chart, colour, number, percent, spec
from .figure import Figure
from .study_parts import (
    SHARE,
    distinct,
    doubling_axis,
    engine_colour,
    figure_of,
    share_axis,
    value,
)

_UTILISATION, _REQUESTS = "batch utilisation", "requests per step"


def memory_by_split(measured: Measurement) -> Figure:
    """Memory by part against the division of the KV memory."""
    parts = distinct(measured, "part")
    first = measured.rows[0][SHARE]
    here = [row for row in measured.rows if row[SHARE] == first]
    total = sum(value(row, "MiB") for row in here)
    pools = sum(value(row, "MiB") for row in here if str(row["part"]).endswith("KV pool"))
    others: dict[object, float] = {}
    for row in measured.rows:
        if not str(row["part"]).endswith("KV pool"):
            others[row[SHARE]] = others.get(row[SHARE], 0.0) + value(row, "MiB")
    least, most = number(min(others.values())), number(max(others.values()))
    rest = (
        f"the other {least} stay as they are"
        if least == most
        else f"the rest takes {least} to {most}"
    )
    reading = (
        f"Of {number(total)} MiB that the pair takes, {number(pools)} are KV pools, which the "
        f"engines divide; {rest}."
    )
    legend = alt.Legend(orient="top", columns=2)
    drawn = (
        chart()
        .mark_area(tooltip=ALL_FIELDS)
        .encode(
            x=share_axis(),
            y=alt.Y("MiB:Q", title="MiB", stack="zero"),
            color=alt.Color("part:N", title=None, sort=parts, scale=colour(parts), legend=legend),
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
    legend = alt.Legend(orient="top", columns=1, labelLimit=300)
    tint = alt.Color("division:N", title=None, scale=colour(divisions), legend=legend)
    x = alt.X("step:Q", title="engine step", scale=alt.Scale(nice=False))
    drawn = alt.layer(
        chart()
        .mark_line(interpolate="step-after", tooltip=ALL_FIELDS)
        .encode(x=x, y=alt.Y("blocks in use:Q"), color=tint),
        chart()
        .mark_line(strokeDash=[2, 4], opacity=0.7)
        .transform_filter("datum.pool <= 4 * datum['most in use']")
        .encode(x=x, y=alt.Y("pool:Q", title="blocks in use"), color=tint),
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
            color=engine_colour(engines),
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
            color=engine_colour(engines),
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
