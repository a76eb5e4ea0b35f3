"""Tables of the engines' memory, requests and work, and of the effect of other cache sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from tts.build.spec import ROLES, Deployment, Role
from tts.prompting import Models
from tts.runs.engine_steps import steps_of_run
from tts.runs.log import read_events
from tts.runs.paged_cache import CacheCurve, TimedRequest, cache_curve
from tts.runs.replay import logged_requests
from tts.runs.run import Run
from tts.runs.statistics import logarithmic_histogram, rounded

from .folder import FigureRow, Measurement
from .kv_memory import PairMemory, divided, generator_share
from .results import CellResult

MIB = 1 << 20
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The generator's shares of the KV memory for which something is computed."""
TOKEN_BINS = 20
MOST_STEPS = 150
"""Rows of an engine under one division."""
SCALES = {"all": 1.0, "1/8": 1 / 8, "1/64": 1 / 64}
"""Sizes of the KV memory, of the deployed."""

Curves = Mapping[Role, CacheCurve]
T = TypeVar("T")


def memory_by_split(spec: Deployment, memory: PairMemory) -> Measurement:
    """What each part of the pair takes, against the generator's share of the KV memory."""
    rows: list[FigureRow] = []
    for share in shares_with(generator_share(spec, memory)):
        other = divided(spec, memory, share)
        parts = dict(memory.fixed) | {
            f"{role}: KV pool": memory.per_token[role] * engine.kv_cache.tokens
            for role, engine in other.engines().items()
        }
        rows += [
            {
                "generator share": round(share, 4),
                "part": part,
                "MiB": round(size / MIB, 1),
            }
            for part, size in parts.items()
            if size
        ]
    notes = [
        "From the memory plan (docs/guides/tune.md#memory): the KV memory is what both pools take."
    ]
    return Measurement("memory-by-split", rows, "modelled", notes)


def shares_with(present: float) -> list[float]:
    """The shares for which something is computed, the present one among them."""
    return sorted({*SHARES, present})


def tokens_per_request(run: Path) -> Measurement:
    """How many requests of the base had how many tokens: prompt and generated ones together."""
    requests = Run.load(run).totals.requests
    rows: list[FigureRow] = [
        {
            "engine": engine,
            "from tokens": round(low, 1),
            "to tokens": round(high, 1),
            "requests": count,
        }
        for engine in ROLES
        for low, high, count in logarithmic_histogram(requests[engine].scheduled_tokens, TOKEN_BINS)
    ]
    notes = ["Bins are equally wide on a logarithmic axis."]
    return Measurement("tokens-per-request", rows, notes=notes)


def kv_blocks(engine: Role, runs: Sequence[tuple[str, Path]]) -> Measurement | None:
    """KV blocks in use over an engine's steps, of runs under different divisions, by title.

    None where the engine did not tell.
    """
    rows: list[FigureRow] = []
    for title, folder in runs:
        steps = [step for step in steps_of_run(folder, engine) if step.blocks_used is not None]
        most = max((step.blocks_used or 0 for step in steps), default=0)
        rows += [
            {
                "division": title,
                "engine": engine,
                "step": begin,
                "blocks in use": max(step.blocks_used or 0 for step in part),
                "pool": part[0].blocks,
                "most in use": most,
            }
            for begin, part in parts(steps, MOST_STEPS)
        ]
    if not rows:
        return None
    notes = [
        "Blocks of active requests; blocks that are kept for reuse alone are left out.",
        f"Thinned to {MOST_STEPS} rows a run: each is the most of neighbouring steps.",
        "Dotted: the pool, where it is near.",
    ]
    return Measurement(f"kv-blocks-{engine}", rows, notes=notes)


def batch_utilisation(results: Sequence[CellResult], spec: Deployment) -> Measurement | None:
    """How full the engines' batches were under each schedule; None where they did not tell."""
    rows: list[FigureRow] = []
    for result in results:
        for engine, limits in spec.engines().items():
            steps = [
                step
                for run in result.runs
                for step in steps_of_run(run.folder, engine)
                if step.scheduled
            ]
            if not steps:
                continue
            batch = fmean(step.scheduled or 0 for step in steps)
            counts = [step.tokens for step in steps if step.tokens is not None]
            tokens = fmean(counts) if counts else None
            rows.append(
                {
                    "schedule": result.cell.title,
                    "engine": engine,
                    "steps": len(steps),
                    "requests per step": round(batch, 2),
                    "batch utilisation": round(batch / limits.max_batch_size, 4),
                    "tokens per step": None if tokens is None else round(tokens, 1),
                    "of max_num_tokens": None
                    if tokens is None
                    else round(tokens / limits.max_num_tokens, 4),
                }
            )
    if not rows:
        return None
    notes = ["Steps in which the engine had something to do; idle time is not in these means."]
    return Measurement("batch-utilisation", rows, notes=notes)


def parts(steps: Sequence[T], most: int) -> Iterable[tuple[int, Sequence[T]]]:
    """Neighbouring steps in at most so many parts, each with the number of its first step."""
    size = max(1, -(-len(steps) // most))
    return ((begin, steps[begin : begin + size]) for begin in range(0, len(steps), size))


def cache_curves(run: Path, spec: Deployment) -> Curves:
    """What a cache of any size makes of a run's requests, by engine; raises RunError."""
    requests: dict[Role, list[TimedRequest]] = defaultdict(list)
    for request in logged_requests(read_events(run), Models.load(spec)):
        requests[request.engine].append(request.ids)
    return {
        engine: cache_curve(requests[engine], limits.kv_cache.block_size)
        for engine, limits in spec.engines().items()
        if requests[engine]
    }


def caches_by_split(spec: Deployment, memory: PairMemory, curves: Curves) -> list[Measurement]:
    """Prefix hits and thrashing against the generator's share of KV memories of several sizes.

    Pools that do not hold the largest request have no row.
    """
    hits: list[FigureRow] = []
    thrashing: list[FigureRow] = []
    for name, scale in SCALES.items():
        for share in shares_with(generator_share(spec, memory)):
            pools = divided(spec, memory, share, scale).engines()
            for engine, curve in curves.items():
                blocks = pools[engine].kv_cache.blocks
                if blocks < curve.least:
                    continue
                use = curve.at(blocks)
                at: FigureRow = {
                    "generator share": round(share, 4),
                    "engine": engine,
                    "KV memory": name,
                    "blocks": blocks,
                }
                hits.append({**at, "hit rate": rounded(use.hit_rate, 4)})
                thrashing.append(
                    {
                        **at,
                        "thrashing": rounded(use.thrashing, 4),
                        "evictions": use.evictions,
                    }
                )
    if not all(curve.lookups for curve in curves.values()):
        return []
    notes = [
        "Modelled: the requests of the deployment's own run through an LRU cache of whole blocks, "
        "of every size at once (docs/guides/tune.md#study). A pool too small for what runs at a "
        "time would let requests wait; the model thrashes instead.",
        *(
            f"{curve.distinct:,} different blocks were used on the {engine}: a pool of so many "
            "evicts nothing."
            for engine, curve in curves.items()
        ),
    ]
    return [
        Measurement("prefix-hits-by-split", hits, "modelled", notes),
        Measurement("thrashing-by-split", thrashing, "modelled", notes),
    ]
