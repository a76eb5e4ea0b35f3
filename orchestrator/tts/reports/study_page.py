"""The output of `tts study` when its runs are finished: advice in words, the figures, the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from tts.lab.study.cells import CellRun
from tts.lab.study.folder import Measurement, Study, run_folder
from tts.lab.study.measure import Findings
from tts.runs.statistics import interval

from .figures.charts import (
    ALL_FIELDS,
    ON_TOP,
    PERCENT,
    Cell,
    Figure,
    Spec,
    TableRow,
    bars,
    bars_height,
    colour,
    doubling_axis,
    field,
    intervals,
    layers,
    log_axis,
    mark,
    measured,
    number,
    percent,
    spec,
    tint,
)
from .page.of_runs import facts_of
from .page.page import FILE, Report

SHARE = "generator share"
SPEED = "throughput, times as deployed"
_SHARE_AXIS = field(
    f"{SHARE}:Q",
    title="the generator's share of the KV memory",
    axis=PERCENT,
    scale={"domain": [0, 1]},
)
_TOKENS, _USED, _REQUESTS = "generated tokens per problem", "batch utilisation", "requests per step"
_ANY: Spec = {"zero": False, "padding": 10}

Drawn = tuple[str, str, Spec, int]
"""Title, reading, chart and height of a figure."""


def _value(row: TableRow, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float), f"{name} is {value!r}"
    return value


def _distinct(rows: Sequence[TableRow], name: str) -> list[str]:
    """The texts in a column, each once, in their order."""
    return list(dict.fromkeys(str(row[name]) for row in rows))


def _of(rows: Sequence[TableRow], name: str, value: str) -> list[TableRow]:
    """The rows with this text in a column."""
    return [row for row in rows if row[name] == value]


def _times(row: TableRow) -> str:
    """A row's speed in words."""
    speed = f"{_value(row, 'speed'):.2f} times as fast"
    if row["low"] is None:
        return speed
    return f"{speed} {interval(_value(row, 'low'), _value(row, 'high'), '.2f')}"


def throughput_by_split(rows: Sequence[TableRow]) -> Drawn:
    """Problems per second against the division of the KV memory."""
    deployed = next(row for row in rows if row["deployed"])
    best = max((row for row in rows if row is not deployed), key=lambda row: _value(row, "speed"))
    reading = (
        f"As deployed the generator has {percent(_value(deployed, SHARE))} of the KV memory, and "
        f"the pair solves {number(_value(deployed, 'problems/s'))} problems/s. The fastest other "
        f"division gives it {percent(_value(best, SHARE))} and is {_times(best)}."
    )
    dots = measured(_SHARE_AXIS, "speed", title=SPEED, scale=_ANY)
    return "Throughput against the division of the KV memory", reading, dots, 260


def ablation(rows: Sequence[TableRow]) -> Drawn:
    """What schedules, speculation and caches do to throughput."""
    base, *others = rows
    sure = [row for row in others if row["low"] is not None and row["high"] is not None]
    faster = [row for row in sure if _value(row, "low") > 1]
    slower = [row for row in sure if _value(row, "high") < 1]
    sentences = [f"As deployed the pair solves {number(_value(base, 'problems/s'))} problems/s."]
    for what, rows_of_kind in (("Faster", faster), ("Slower", slower)):
        if rows_of_kind:
            names = ", ".join(
                f"{row['changed']} ({_value(row, 'speed'):.2f}x)" for row in rows_of_kind
            )
            sentences.append(f"{what} beyond the noise: {names}.")
    if untold := len(others) - len(faster) - len(slower):
        sentences.append(f"{untold} of {len(others)} changes are not told apart from it.")
    y = field("changed:N", title=None, sort=None, axis={"labelLimit": 240})
    dots = intervals("speed", y, title=SPEED, scale=_ANY)
    return "Schedules, speculation and caches", " ".join(sentences), dots, bars_height(len(rows))


def concurrency(rows: Sequence[TableRow]) -> Drawn:
    """Throughput against the problems in flight."""
    first = next(row for row in rows if row["limited"])
    free = next(row for row in rows if not row["limited"])

    def speed(row: TableRow) -> str:
        seconds = row["s per problem (median)"]
        each = f"{number(seconds)} s" if isinstance(seconds, int | float) else "an unknown time"
        return f"{number(_value(row, 'problems/s'))} problems/s, each in {each}"

    reading = (
        f"With {first['problems in flight']} at a time the pair solves {speed(first)}; without a "
        f"limit {speed(free)}: {number(1 / _value(first, 'speed'))} times the throughput."
    )
    x = doubling_axis("problems in flight", "problems in flight")
    dots = measured(x, "speed", title=SPEED, scale=_ANY)
    return "Throughput against the problems in flight", reading, dots, 260


def accuracy_by_n(rows: Sequence[TableRow]) -> Drawn:
    """Accuracy over the number of completions."""
    first, last = rows[0], rows[-1]

    def right(row: TableRow) -> str:
        low, high = 100 * _value(row, "low"), 100 * _value(row, "high")
        return f"{percent(_value(row, 'accuracy'))} {interval(low, high)} right"

    reading = (
        f"n = {first['n']} answers {right(first)}, n = {last['n']} {right(last)}, at "
        f"{number(_value(last, _TOKENS) / _value(first, _TOKENS))} times the generated tokens."
    )
    x = doubling_axis("n", "completions (n)")
    dots = measured(x, "accuracy", title="accuracy", axis=PERCENT, scale=_ANY)
    return "Accuracy over n", reading, dots, 260


def prefix_hits(rows: Sequence[TableRow]) -> Drawn:
    """The prefix hit rate of both engines against the division."""
    return _over_pools(rows, "Prefix hits", "hit rate", "found in the cache")


def thrashing(rows: Sequence[TableRow]) -> Drawn:
    """Cache thrashing of both engines against the division."""
    return _over_pools(rows, "Cache thrashing", "thrashing", "evicted and computed again")


def _over_pools(rows: Sequence[TableRow], what: str, name: str, happens: str) -> Drawn:
    """A rate of both engines over the shares, a line for each size of the memory."""
    engines = _distinct(rows, "engine")
    sentences = []
    for engine in engines:
        rates = [_value(row, name) for row in _of(rows, "engine", engine)]
        sentences.append(f"{percent(min(rates))} to {percent(max(rates))} of the {engine}'s")
    memory = "KV memory"
    dashes = field(
        f"{memory}:N",
        sort=_distinct(rows, memory),
        title="KV memory, of the deployed",
        legend=ON_TOP,
    )
    base: Spec = {
        "x": _SHARE_AXIS,
        "y": field(f"{name}:Q", title=f"share of prompt blocks {happens}", axis=PERCENT),
        "color": tint("engine", engines),
    }
    dot = {"filled": True, "tooltip": ALL_FIELDS}
    lines = layers(  # points of their own: a line with points has no dashes in its legend
        mark("line", {}, **base, strokeDash=dashes),
        mark("point", dot, **base, detail=field(f"{memory}:N")),
    )
    reading = f"Over all divisions, {' and '.join(sentences)} blocks of prompts are {happens}."
    return f"{what} against the division of the KV memory", reading, lines, 260


def memory_by_split(rows: Sequence[TableRow]) -> Drawn:
    """Memory by part against the division of the KV memory."""
    parts = _distinct(rows, "part")
    here = [row for row in rows if row[SHARE] == rows[0][SHARE]]
    total = sum(_value(row, "MiB") for row in here)
    pools = sum(_value(row, "MiB") for row in here if str(row["part"]).endswith("KV pool"))
    reading = (
        f"Of {number(total)} MiB that the pair takes, {number(pools)} are KV pools, which the "
        "engines divide."
    )
    areas = mark(
        "area",
        {"tooltip": ALL_FIELDS},
        x=_SHARE_AXIS,
        y=field("MiB:Q", title="MiB", stack="zero"),
        color={**tint("part", parts), "sort": parts},
    )
    return "Memory by component", reading, areas, 260


def kv_blocks(rows: Sequence[TableRow]) -> Drawn:
    """KV blocks in use over an engine's steps under two divisions."""
    engine, divisions = rows[0]["engine"], _distinct(rows, "division")
    sentences = []
    for division in divisions:
        here = _of(rows, "division", division)
        most, pool = max(_value(row, "blocks in use") for row in here), _value(here[0], "pool")
        sentences.append(f"{division} {number(most)} of {number(pool)} ({percent(most / pool)})")
    legend = {**ON_TOP, "columns": 1, "labelLimit": 0}
    both: Spec = {
        "x": field("step:Q", title="engine step", scale={"nice": False}),
        "color": field("division:N", title=None, scale=colour(divisions), legend=legend),
    }
    usage: Spec = {"interpolate": "step-after", "tooltip": ALL_FIELDS}
    at = field("pool:Q", title="blocks in use")
    pools = mark("line", {"strokeDash": [2, 4], "opacity": 0.7}, **both, y=at)
    pools["transform"] = [{"filter": "datum.pool <= 4 * datum['most in use']"}]
    lines = layers(mark("line", usage, **both, y=field("blocks in use:Q")), pools)
    reading = f"Most blocks in use on the {engine}: {', '.join(sentences)}."
    return f"KV blocks in use on the {engine}", reading, lines, 220


def batch_utilisation(rows: Sequence[TableRow]) -> Drawn:
    """How full the batches were, by schedule."""
    engines = _distinct(rows, "engine")
    sentences = []
    for engine in engines:
        by_use = sorted(_of(rows, "engine", engine), key=lambda row: _value(row, _USED))
        least, most = (
            f"{number(_value(row, _REQUESTS))} ({row['schedule']})"
            for row in (by_use[0], by_use[-1])
        )
        full = percent(_value(by_use[-1], _USED))
        sentences.append(
            f"A step of the {engine} held {least} to {most} requests, {full} of its batch."
        )
    picture = bars(
        field(f"{_USED}:Q", title="mean requests per step, of max_batch_size", axis=PERCENT),
        "schedule",
        None,
        yOffset=field("engine:N", sort=engines),
        color=tint("engine", engines),
    )
    return "Batch utilisation", " ".join(sentences), picture, bars_height(len(rows))


def tokens_per_request(rows: Sequence[TableRow]) -> Drawn:
    """Tokens scheduled per request of both engines."""
    engines = _distinct(rows, "engine")
    sentences = []
    for engine in engines:
        here = _of(rows, "engine", engine)
        count = sum(_value(row, "requests") for row in here)
        low, high = _value(here[0], "from tokens"), _value(here[-1], "to tokens")
        sentences.append(f"the {engine} {number(count)} of {number(low)} to {number(high)} tokens")
    ends = [_value(row, name) for row in rows for name in ("from tokens", "to tokens")]
    scale = log_axis(ends, padding=0)
    histogram = mark(
        "bar",
        {"opacity": 0.7, "tooltip": ALL_FIELDS},
        x=field("from tokens:Q", bin="binned", title="tokens of a request", **scale),
        x2={"field": "to tokens"},
        y=field("requests:Q", stack=None),
        color=tint("engine", engines),
    )
    reading = f"Requests by their tokens, prompt and generated ones: {'; '.join(sentences)}."
    return "Tokens scheduled per request", reading, histogram, 220


def by_load(rows: Sequence[TableRow]) -> Drawn:
    """Throughput of an engine over the load in flight."""
    engine, unit, point = (rows[0][name] for name in ("engine", "unit", "saturation point"))
    best = max(_value(row, "tokens/s") for row in rows)
    where = (
        f"95% of it from {point:,.0f} {unit} in flight on"
        if isinstance(point, int | float)
        else "no saturation point was seen"
    )
    reading = f"The {engine} alone does {number(best)} tokens/s at best; {where}."
    x = doubling_axis("in flight", f"{unit} in flight")
    dots = measured(x, "tokens/s", ("lowest", "highest"), title="tokens/s")
    return f"Throughput of the {engine} over load", reading, dots, 220


FIGURES: Mapping[str, Callable[[Sequence[TableRow]], Drawn]] = {
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
    figures = []
    for name, draw in FIGURES.items():
        if table := by_name.get(name):
            title, reading, picture, height = draw(table.rows)
            chart = spec(picture, height)
            figures.append(
                Figure(name, title, reading, table.rows, chart, table.origin, table.notes)
            )
    return figures


def print_advice(out: Console, report: Report) -> None:
    """Print each advice with the title of the figure that it rests on."""
    for advice in report.advice:
        out.print(f"[bold]{advice.subject}[/bold]", soft_wrap=True)
        out.print(f"  {advice.text}", markup=False, soft_wrap=True)
        rests_on = report.title_of(advice.figure)
        out.print(f"  Figure: {rests_on}", style="dim", markup=False, soft_wrap=True)


def study_report(study: Study, findings: Findings) -> Report:
    """The report of a study, with the trees of the base's first run."""
    rounds = study.config.form.rounds
    times = "one round" if rounds == 1 else f"{rounds} rounds"
    first_run = run_folder(study.folder, CellRun(study.cells()[0], 1))
    facts = {name: each for name, each in facts_of([first_run]).items() if name != "Configuration"}
    return Report(
        study.folder / FILE,
        f"Study of {study.config.deployment}",
        study_figures(findings.measurements),
        [first_run],
        {**_configuration(study, findings), **facts},
        f"Throughput and accuracy of both engines, measured in {times} of {findings.problems:,} "
        f"problems of {study.config.dataset}.",
        advice=findings.advice,
    )


def _configuration(study: Study, findings: Findings) -> dict[str, Mapping[str, Cell]]:
    """The study's configuration, for the page."""
    config, spec = study.config, study.spec
    engines: dict[str, Cell] = {}
    for role, engine in study.planned.engines().items():
        engines[f"{role}: checkpoint"] = engine.checkpoint.name
        engines[f"{role}: precision"] = engine.precision
        engines[f"{role}: KV blocks"] = engine.kv_cache.blocks
        engines[f"{role}: max_batch_size"] = engine.max_batch_size
        engines[f"{role}: max_num_tokens"] = engine.max_num_tokens
    strategy = study.strategy()
    form = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config.form).items()
        if value is not None
    }
    return {
        "Study": {
            "deployment": config.deployment_source,
            "target": spec.target,
            "digest": config.deployment_digest,
            "dataset": config.dataset,
            "seed": config.seed,
            "strategy": f"{strategy.name}, n = {study.n}",
            "rounds": config.form.rounds,
            "problems in a round": findings.problems,
            "servers were started with other limits": config.restarts,
            "same trees in all cells of a round": findings.same_trees,
        },
        "Engines": engines,
        "Form": form,
    }
