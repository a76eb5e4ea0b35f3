"""Figures of what a run did and how long it took: tokens, requests, speculation, trees, load."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from math import ceil

from tts.build.spec import ROLES, Role
from tts.runs.run import Run

from .charts import (
    ALL_FIELDS,
    BLUE,
    VERMILLION,
    Figure,
    Spec,
    TableRow,
    bars,
    bars_height,
    field,
    histogram,
    layers,
    mark,
    number,
    percent,
    spec,
    thinned,
    tint,
)

_KINDS = ("main", "eager", "speculative", "prefetch", "cancelled", "cached")
_REASONS = ("dependency", "budget", "no work")
_LOADS: dict[Role, str] = {"generator": "requests", "verifier": "prompt tokens"}


def token_use(run: Run) -> Figure | None:
    """Where the generated tokens went; None without any."""
    measures, useful = run.totals, run.totals.useful_tokens
    total = measures.generated_tokens
    if not total:
        return None
    unused, excess = measures.speculation.unused_tokens, measures.lost_tokens
    parts = {
        "on completions' paths": useful,
        "pruned or unfinished": max(0, total - useful - unused - excess),
        "speculated in vain": unused,
    }
    if excess:
        parts["beyond the budget"] = excess
    rate = f": {number(useful / measures.wall_s)} useful tokens per second"
    return _parts(
        "token-use",
        "What the generated tokens were for",
        f"{percent(useful / total)} of {total:,} generated tokens are on the path of a completion"
        f"{rate if measures.wall_s else ''}. {percent(unused / total)} were speculated in vain"
        + (f", {percent(excess / total)} beyond the budget." if excess else "."),
        parts,
        ("tokens", "count"),
        "generated tokens",
    )


def tokens_per_problem(run: Run) -> Figure | None:
    """The distribution of generated tokens per problem; None without problems."""
    tokens = array("d", (problem.tokens for problem in run.totals.problems.values()))
    return histogram(
        "tokens-per-problem",
        "Generated tokens per problem",
        tokens,
        "tokens",
        of="problems",
        axis="generated tokens",
        note="All that were generated for it, whether they were needed or not.",
    )


def latency(run: Run) -> Figure | None:
    """The distribution of the time per problem; None without problems."""
    seconds = run.totals.latencies_s
    return histogram(
        "latency",
        "Time per problem",
        seconds,
        "s",
        of="problems",
        axis="seconds from start to graded answer",
        note="Problems share the engines, so this time depends on how many run at once.",
    )


def requests_by_kind(run: Run) -> Figure | None:
    """Requests to each engine by kind; None without requests."""
    requests, work = run.totals.requests, run.totals.run.work
    counts = {engine: Counter(requests[engine].kinds) for engine in ROLES}
    counts["verifier"]["cached"] = work.cached_scores
    rows: list[TableRow] = [
        {"engine": engine, "kind": kind, "requests": counts[engine][kind]}
        for engine in ROLES
        for kind in _KINDS
        if counts[engine][kind]
    ]
    if not rows:
        return None
    there = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    picture = bars(
        field("requests:Q", title="requests, and scores from the cache"),
        "engine",
        ROLES,
        color=tint("kind", there, _KINDS),
        order=field("place:Q"),
    )
    picture["transform"] = [{"calculate": f"indexof({there!r}, datum.kind)", "as": "place"}]
    hits = work.cache_hit_rate
    cached = f"; {percent(hits)} of the scores were known of an equal step" if hits else ""
    return Figure(
        "requests-by-kind",
        "Requests by kind",
        f"The generator answered {requests['generator'].count:,} requests, the verifier "
        f"{requests['verifier'].count:,}{cached}.",
        rows,
        spec(picture, bars_height(4)),
    )


def speculation(run: Run) -> Figure | None:
    """The outcome of expansions that were sent ahead; None without any."""
    ahead = run.totals.speculation
    if not ahead.sent:
        return None
    cancelled = sum(ahead.cancelled.values())
    parts = {"used": ahead.used, "answered, not needed": ahead.sent - ahead.used - cancelled}
    parts = {name: max(0, count) for name, count in parts.items()}
    parts |= {f"cancelled: {why}": count for why, count in sorted(ahead.cancelled.items())}
    return _parts(
        "speculation",
        "What became of speculation",
        f"{ahead.sent:,} expansions were sent before their search asked for them; "
        f"{percent(ahead.hit_rate)} were asked for in the end. {ahead.unused_tokens:,} tokens were "
        "answered and not needed.",
        parts,
        ("outcome", "requests"),
        "speculative expansions",
    )


def tokens_per_request(run: Run, engine: Role) -> Figure | None:
    """Tokens of each request to an engine."""
    requests = run.totals.requests[engine]
    sampled = f" One request in {requests.every} is drawn." if requests.every > 1 else ""
    return histogram(
        f"tokens-per-{engine}-request",
        f"Tokens per {engine} request",
        requests.scheduled_tokens,
        "tokens",
        of="requests",
        axis="prompt and generated tokens",
        note="As the client sent them, whatever an engine finds in its prefix cache." + sampled,
        logarithmic=True,
    )


def tree_shape(run: Run) -> Figure | None:
    """Nodes of the trees by depth: how wide they are, and how many go so deep."""
    widths, problems = run.totals.widths, len(run.totals.problems)
    if not widths:
        return None
    rows: list[TableRow] = [
        {
            "depth": depth,
            "nodes per problem": round(_nodes(widths[depth - 1]) / problems, 3),
            "widest": max(widths[depth - 1]),
            "problems": widths[depth - 1].total(),
        }
        for depth in thinned(range(1, len(widths) + 1), 100)
    ]
    middle = ceil(problems / 2) - 1
    median = sum(problems - trees.total() <= middle for trees in widths)
    nodes = sum(map(_nodes, widths)) / problems
    steps = {"labelOverlap": True, "labelAngle": 0}
    columns = mark(
        "bar",
        {"color": BLUE, "tooltip": ALL_FIELDS},
        x=field("depth:O", title="depth (steps)", axis=steps),
        y=field("nodes per problem:Q"),
    )
    return Figure(
        "tree-shape",
        "Depth and width of the trees",
        f"A tree has {number(nodes)} steps in the mean and is {number(median)} deep in the median, "
        f"{number(len(widths))} at most.",
        rows,
        spec(columns, 200),
    )


def _nodes(trees: Counter[int]) -> int:
    return sum(width * count for width, count in trees.items())


def in_flight(run: Run, engine: Role) -> Figure | None:
    """The load in flight on an engine over time."""
    wall, load = run.totals.wall_s, run.totals.in_flight[engine]
    means, unit = load.means(wall), _LOADS[engine]
    if engine == "verifier" and run.config.critiques:
        unit = "critiques"
    if not means or not load.total:
        return None
    rows: list[TableRow] = [
        {"seconds": round(place * load.width_s, 6), unit: round(mean, 3)}
        for place, mean in enumerate(means)
    ]
    line = {"color": BLUE}
    picture = mark(
        "area",
        {**line, "opacity": 0.7, "interpolate": "step-after", "line": line},
        x=field("seconds:Q", title="seconds since the run began", scale={"nice": False}),
        y=field(f"{unit}:Q", title=f"{unit} in flight"),
    )
    utilization, limits = run.totals.batch_utilization(engine), run.totals.run.limits
    of_limit = ""
    if limits is not None and utilization is not None:
        limit = limits[ROLES.index(engine)]
        of_limit = f", {percent(utilization)} of the {limit:,} that the policy allows"
        dashed: Spec = {"strokeDash": [4, 4], "color": VERMILLION}
        picture = layers(picture, mark("rule", dashed, y={"datum": limit}))
    return Figure(
        f"in-flight-{engine}",
        f"In flight on the {engine}",
        f"On average {number(load.total / wall)} {unit} were in flight{of_limit}; the busiest "
        f"{number(load.width_s)} s had {number(max(means))}.",
        rows,
        spec(picture, 160),
        notes=["The dashed line is what the policy allows."] if of_limit else [],
    )


def idle(run: Run) -> Figure | None:
    """Shares of the time in which an engine had nothing in flight, by why; None without any."""
    wall, by_engine = run.totals.wall_s, run.totals.idle_s
    rows: list[TableRow] = [
        {
            "engine": engine,
            "why": why,
            "seconds": round(seconds, 3),
            "share": round(seconds / wall, 4),
        }
        for engine in ROLES
        for why, seconds in sorted(by_engine[engine].items())
        if wall
    ]
    if not rows:
        return None
    reasons = list(dict.fromkeys(str(row["why"]) for row in rows))
    picture = bars(
        field("share:Q", title="share of the run", axis={"format": ".1%"}),
        "engine",
        ROLES,
        color=tint("why", reasons, _REASONS),
    )
    sentences = [
        f"the {engine} had nothing in flight for {percent(sum(by_why.values()) / wall)} of the run"
        + "".join(f", {percent(seconds / wall)} {why}" for why, seconds in sorted(by_why.items()))
        for engine, by_why in by_engine.items()
    ]
    return Figure(
        "idle",
        "Idle time by cause",
        f"{'; '.join(sentences).capitalize()}.",
        rows,
        spec(picture, bars_height(3)),
        notes=[
            "Dependency: the other engine's answers were awaited; budget: the schedule held work "
            "back; no work: there was none."
        ],
    )


def _parts(
    name: str,
    title: str,
    reading: str,
    parts: Mapping[str, int],
    columns: tuple[str, str],
    axis: str,
) -> Figure:
    """The parts of a total, a row and a bar each; `columns` hold their names and counts."""
    names, counts = columns
    total = sum(parts.values())
    rows: list[TableRow] = [
        {names: part, counts: count, "share": round(count / total, 4)}
        for part, count in parts.items()
    ]
    picture = bars(field(f"{counts}:Q", title=axis), names, list(parts))
    return Figure(name, title, reading, rows, spec(picture, bars_height(len(rows))))
