"""Figures of what a run did: tokens, requests, speculation, trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import altair as alt

from tts.runs.measured_run import MeasuredRun
from tts.runs.records import ENGINES, Engine
from tts.runs.statistics import quantile

from .charts import (
    ALL_FIELDS,
    BLUE,
    above,
    bars_height,
    chart,
    histogram,
    histogram_rows,
    histogram_spec,
    number,
    percent,
    spec,
    thinned,
    tint,
)
from .figure import Figure, TableRow


def token_use(run: MeasuredRun) -> Figure | None:
    """Where the generated tokens went; None without any."""
    use, useful = run.measures.use, run.measures.useful_tokens
    total = use.run.work.generated_tokens + round(use.cancelled_tokens)
    if not total:
        return None
    unused, lost = use.speculation.unused_tokens, use.lost_tokens
    parts = {
        "on completions' paths": useful,
        "pruned or unfinished": max(0, use.run.work.generated_tokens - useful - unused - lost),
        "speculated in vain": unused,
        "cancelled (estimated)": round(use.cancelled_tokens),
    }
    if lost:
        parts["beyond the budget"] = lost
    rows, drawn = _parts(parts, total, "tokens", "count", "generated tokens")
    rate = number(useful / run.measures.wall_s) if run.measures.wall_s else "–"
    return Figure(
        "token-use",
        "What the generated tokens were for",
        f"{percent(useful / total)} of {total:,} generated tokens are on the path of a completion: "
        f"{rate} useful tokens per second. {percent((unused + use.cancelled_tokens) / total)} were "
        "speculated in vain or cancelled; the rest are on paths that were pruned or not finished.",
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
        f"less, {above(len(tokens), partial(quantile, tokens))}; the mean is "
        f"{number(sum(tokens) / len(tokens))}.",
        histogram_rows(parts, "tokens"),
        histogram_spec("tokens", "generated tokens", "problems"),
    )


def requests_by_kind(run: MeasuredRun) -> Figure | None:
    """Requests to each engine by kind; None without requests."""
    kinds = ["main", "eager", "speculative", "prefetch", "cancelled", "cached"]
    counts = {engine: Counter(run.measures.requests[engine].kinds) for engine in ENGINES}
    counts["verifier"]["cached"] = run.measures.run.work.cached_scores
    rows: list[TableRow] = [
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
            color=tint("kind", there, kinds),
            order=alt.Order("place:Q"),
        )
        .transform_calculate(place=f"indexof({there!r}, datum.kind)")
    )
    hits = run.measures.run.work.cache_hit_rate
    cached = (
        f"; {percent(hits)} of the scores needed no request, because an equal step had been scored "
        "before"
        if hits is not None
        else ""
    )
    asked = run.measures.requests
    return Figure(
        "requests-by-kind",
        "Requests by kind",
        f"The generator answered {asked['generator'].seconds.count:,} requests, the verifier "
        f"{asked['verifier'].seconds.count:,}{cached}.",
        rows,
        spec(drawn, bars_height(4)),
    )


def speculation(run: MeasuredRun) -> Figure | None:
    """The outcome of expansions that were sent ahead; None without any."""
    ahead = run.measures.use.speculation
    if not ahead.sent:
        return None
    cancelled = sum(ahead.cancelled.values())
    answered_unused = max(0, ahead.sent - ahead.used - cancelled)
    parts = {"used": ahead.used, "answered, not needed": answered_unused}
    parts |= {f"cancelled: {why}": count for why, count in sorted(ahead.cancelled.items())}
    rows, drawn = _parts(parts, ahead.sent, "outcome", "requests", "speculative expansions")
    return Figure(
        "speculation",
        "What became of speculation",
        f"{ahead.sent:,} expansions were sent before their search asked for them; "
        f"{percent(ahead.hit_rate)} were asked for in the end. {ahead.unused_tokens:,} tokens were "
        "answered and not needed.",
        rows,
        spec(drawn, bars_height(len(rows))),
        notes=["One that its search asked for may have been cancelled when the search ended."],
    )


def tokens_per_generator_request(run: MeasuredRun) -> Figure | None:
    """Tokens of each generator request."""
    return _tokens_per_request(run, "generator", "prompt and generated tokens")


def tokens_per_verifier_request(run: MeasuredRun) -> Figure | None:
    """Tokens of each verifier request."""
    return _tokens_per_request(run, "verifier", "prompt tokens")


def _tokens_per_request(run: MeasuredRun, engine: Engine, unit: str) -> Figure | None:
    sketch = run.measures.requests[engine].scheduled_tokens
    parts = [part for part in sketch.histogram(30) if part[0]]
    if not parts or sketch.mean is None:
        return None
    middle, most = number(sketch.quantile(0.5) or 0), above(sketch.count, sketch.quantile)
    return Figure(
        f"tokens-per-{engine}-request",
        f"Tokens per {engine} request",
        f"Of {sketch.count:,} requests half scheduled {middle} {unit} or fewer, {most}; the mean "
        f"is {number(sketch.mean)}.",
        histogram_rows(parts, "tokens"),
        histogram_spec("tokens", unit, "requests", logarithmic=True),
        notes=[
            "As the client sent them: what an engine finds in its prefix cache it does not "
            "compute again."
        ],
    )


def tree_shape(run: MeasuredRun) -> Figure | None:
    """Nodes of the trees by depth: how wide they are, and how many go so deep."""
    shapes = [problem.tree.nodes_by_depth for problem in run.measures.problems.values()]
    deepest = max(map(len, shapes), default=0)
    if not deepest:
        return None
    rows: list[TableRow] = []
    for depth in thinned(range(1, deepest + 1), 100):
        widths = [shape[depth - 1] for shape in shapes if len(shape) >= depth]
        rows.append(
            {
                "depth": depth,
                "nodes per problem": round(sum(widths) / len(shapes), 3),
                "widest": max(widths),
                "problems": len(widths),
            }
        )
    depths = [float(len(shape)) for shape in shapes]
    nodes = sum(map(sum, shapes)) / len(shapes)
    drawn = (
        chart()
        .mark_bar(color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X(
                "depth:O", title="depth (steps)", axis=alt.Axis(labelOverlap=True, labelAngle=0)
            ),
            y=alt.Y("nodes per problem:Q", title="nodes per problem"),
        )
    )
    return Figure(
        "tree-shape",
        "Depth and width of the trees",
        f"A tree has {number(nodes)} steps in the mean and is {number(quantile(depths, 0.5) or 0)} "
        f"deep in the median, {number(max(depths))} at most.",
        rows,
        spec(drawn, 200),
    )


def _parts(
    parts: Mapping[str, int], total: int, names: str, counts: str, title: str
) -> tuple[list[TableRow], alt.Chart]:
    """The parts of a total, a row and a bar each; `names` and `counts` are the columns."""
    rows: list[TableRow] = [
        {names: name, counts: count, "share": round(count / total, 4)}
        for name, count in parts.items()
    ]
    drawn = (
        chart()
        .mark_bar(color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X(f"{counts}:Q", title=title),
            y=alt.Y(f"{names}:N", title=None, sort=list(parts)),
        )
    )
    return rows, drawn
