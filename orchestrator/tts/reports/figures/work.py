"""Figures of what a run did: tokens, requests, speculation, trees."""

from __future__ import annotations

from collections import Counter

import altair as alt

from tts.analysis.measured_run import MeasuredRun
from tts.analysis.records import ENGINES
from tts.analysis.statistics import quantile

from .charts import (
    ALL_FIELDS,
    BLUE,
    bars_height,
    chart,
    colour,
    histogram,
    histogram_rows,
    histogram_spec,
    number,
    percent,
    spec,
)
from .figure import Figure, Row


def token_use(run: MeasuredRun) -> Figure | None:
    """Where the generated tokens went; None without any."""
    use, useful = run.measures.use, run.measures.useful_tokens
    total = use.generated_tokens + round(use.cancelled_tokens)
    if not total:
        return None
    unused = use.speculation.unused_tokens
    parts = {
        "on completions' paths": useful,
        "pruned or unfinished": max(0, use.generated_tokens - useful - unused),
        "speculated in vain": unused,
        "cancelled (estimated)": round(use.cancelled_tokens),
    }
    rows: list[Row] = [
        {"tokens": name, "count": count, "share": round(count / total, 4)}
        for name, count in parts.items()
    ]
    drawn = (
        chart()
        .mark_bar(color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("count:Q", title="generated tokens"),
            y=alt.Y("tokens:N", title=None, sort=list(parts)),
        )
    )
    rate = number(useful / run.measures.wall_s) if run.measures.wall_s else "–"
    return Figure(
        "token-use",
        "What the generated tokens were for",
        f"{percent(useful / total)} of {total:,} generated tokens are on the path of a completion: "
        f"{rate} useful tokens per second. {percent((unused + use.cancelled_tokens) / total)} were "
        "generated in vain; the rest explored what was pruned.",
        rows,
        spec(drawn, bars_height(len(rows))),
    )


def tokens_per_problem(run: MeasuredRun) -> Figure | None:
    """The distribution of generated tokens per problem; None without problems."""
    tokens = [float(problem.tokens) for problem in run.measures.problems.values()]
    parts = histogram(tokens, 25)
    if not parts:
        return None
    return Figure(
        "tokens-per-problem",
        "Generated tokens per problem",
        f"Half of {len(tokens):,} problems took {number(quantile(tokens, 0.5) or 0)} tokens or "
        f"less, 5% more than {number(quantile(tokens, 0.95) or 0)}; the mean is "
        f"{number(sum(tokens) / len(tokens))}.",
        histogram_rows(parts, "tokens"),
        histogram_spec("tokens", "generated tokens", "problems"),
    )


def requests_by_kind(run: MeasuredRun) -> Figure | None:
    """Requests to each engine by kind; None without requests."""
    kinds = ["main", "eager", "speculative", "prefetch", "cancelled", "cached"]
    counts = {engine: Counter(run.measures.requests[engine].kinds) for engine in ENGINES}
    counts["verifier"]["cached"] = run.measures.cached_scores
    rows: list[Row] = [
        {"engine": engine, "kind": kind, "requests": counts[engine][kind]}
        for engine in ENGINES
        for kind in kinds
        if counts[engine][kind]
    ]
    if not rows:
        return None
    there = [kind for kind in kinds if any(row["kind"] == kind for row in rows)]
    drawn = (
        chart()
        .mark_bar(tooltip=ALL_FIELDS)
        .encode(
            x=alt.X("requests:Q", title="requests, and scores from the cache"),
            y=alt.Y("engine:N", title=None, sort=list(ENGINES)),
            color=alt.Color(
                "kind:N", title=None, scale=colour(there), legend=alt.Legend(orient="top")
            ),
            order=alt.Order("place:Q"),
        )
        .transform_calculate(place=f"indexof({there!r}, datum.kind)")
    )
    hits = run.measures.cache_hit_rate
    asked = run.measures.requests
    return Figure(
        "requests-by-kind",
        "Requests by kind",
        f"The generator answered {asked['generator'].seconds.count:,} requests, the verifier "
        f"{asked['verifier'].seconds.count:,}; {percent(hits)} of the scores needed no request, "
        "because an equal step had been scored before.",
        rows,
        spec(drawn, bars_height(4)),
    )
