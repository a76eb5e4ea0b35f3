"""Figures of a run's time: latency of problems, what was in flight, why an engine was idle."""

from __future__ import annotations

import altair as alt

from tts.runs.measured_run import MeasuredRun
from tts.runs.records import ENGINES, Engine
from tts.runs.statistics import quantile

from .charts import (
    ALL_FIELDS,
    BLUE,
    VERMILLION,
    bars_height,
    chart,
    histogram,
    histogram_rows,
    histogram_spec,
    number,
    percent,
    spec,
    tint,
)
from .figure import Figure, TableRow

_REASONS = ("dependency", "budget", "no work")
_LOADS: dict[Engine, str] = {"generator": "requests", "verifier": "prompt tokens"}


def latency(run: MeasuredRun) -> Figure | None:
    """The distribution of the time per problem; None without problems."""
    seconds = list(run.measures.use.latencies_s.values())
    parts = histogram(seconds, 25)
    if not parts:
        return None
    middle, most = (number(quantile(seconds, share) or 0) for share in (0.5, 1.0))
    tails = [share for share in (95, 99) if len(seconds) * (100 - share) >= 100]
    named = "".join(
        f", {number(quantile(seconds, p / 100) or 0)} s at the {p}th percentile" for p in tails
    )
    return Figure(
        "latency",
        "Time per problem",
        f"From its start to its graded answer a problem took {middle} s in the median{named} and "
        f"{most} s at most, over {len(seconds):,} problems.",
        histogram_rows(parts, "s"),
        histogram_spec("s", "seconds from start to answer", "problems"),
        notes=["Problems share the engines, so this time depends on how many run at once."],
    )


def in_flight_generator(run: MeasuredRun) -> Figure | None:
    """Requests in flight on the generator over time."""
    return _in_flight(run, "generator")


def in_flight_verifier(run: MeasuredRun) -> Figure | None:
    """Prompt tokens in flight on the verifier over time."""
    return _in_flight(run, "verifier")


def _in_flight(run: MeasuredRun, engine: Engine) -> Figure | None:
    wall, load = run.measures.wall_s, run.measures.in_flight[engine]
    means = load.means(wall)
    if not means or not load.total:
        return None
    unit = _LOADS[engine]
    rows: list[TableRow] = [
        {"seconds": round(place * load.width_s, 6), unit: round(mean, 3)}
        for place, mean in enumerate(means)
    ]
    area = (
        chart()
        .mark_area(color=BLUE, opacity=0.7, interpolate="step-after", line={"color": BLUE})
        .encode(
            x=alt.X("seconds:Q", title="seconds since the run began", scale=alt.Scale(nice=False)),
            y=alt.Y(f"{unit}:Q", title=f"{unit} in flight"),
        )
    )
    used = run.measures.batch_utilization(engine)
    limits, of_limit = run.measures.run.limits, ""
    drawn: alt.Chart | alt.LayerChart | alt.FacetChart = area
    if limits is not None and used is not None:
        limit = limits[ENGINES.index(engine)]
        of_limit = f", {percent(used)} of the {limit:,} that the policy allows (dashed)"
        line = chart().mark_rule(strokeDash=[4, 4], color=VERMILLION)
        drawn = alt.layer(area, line.encode(y=alt.YDatum(limit)))
    return Figure(
        f"in-flight-{engine}",
        f"In flight on the {engine}",
        f"On average {number(load.total / wall)} {unit} were in flight{of_limit}; the busiest "
        f"stretch had {number(max(means))}.",
        rows,
        spec(drawn, 160),
        notes=[f"Means over {number(load.width_s)} s each."],
    )


def idle(run: MeasuredRun) -> Figure | None:
    """Shares of the time in which an engine had nothing in flight, by why; None without any."""
    wall, by_engine = run.measures.wall_s, run.measures.use.idle_s
    rows: list[TableRow] = [
        {
            "engine": engine,
            "why": why,
            "seconds": round(seconds, 3),
            "share": round(seconds / wall, 4),
        }
        for engine in ENGINES
        for why, seconds in sorted(by_engine[engine].items())
    ]
    if not rows or not wall:
        return None
    reasons = list(dict.fromkeys(str(row["why"]) for row in rows))
    drawn = (
        chart()
        .mark_bar(tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("share:Q", title="share of the run", axis=alt.Axis(format=".1%")),
            y=alt.Y("engine:N", title=None, sort=list(ENGINES), scale=alt.Scale(domain=ENGINES)),
            color=tint("why", reasons, _REASONS),
        )
    )
    totals = {engine: sum(by_engine[engine].values()) / wall for engine in ENGINES}
    return Figure(
        "idle",
        "Idle time by cause",
        f"The generator had nothing in flight for {percent(totals['generator'])} of the run, the "
        f"verifier for {percent(totals['verifier'])}. Dependency: the other engine's answers were "
        "awaited; budget: the schedule held work back; no work: there was none.",
        rows,
        spec(drawn, bars_height(3)),
    )
