"""Tables of what caches of other sizes make of a run: the run's own requests through a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tts.build.spec import Deployment
from tts.prompting import Models
from tts.runs.events import EngineName
from tts.runs.folder import read_problems
from tts.runs.log import read_events
from tts.runs.paged_cache import CacheCurve, TimedRequest, cache_curve
from tts.runs.statistics import rounded
from tts.runs.token_requests import requests_with_ids

from .inside import shares_with
from .kv_memory import PairMemory, divided, generator_share
from .measurement import Measurement, Row

Curves = Mapping[EngineName, CacheCurve]
SCALES = {"all": 1.0, "1/8": 1 / 8, "1/64": 1 / 64}
"""Sizes of the KV memory, of the deployed."""


def cache_curves(run: Path, spec: Deployment) -> Curves:
    """What a cache of any size makes of a run's requests, by engine; raises RunError."""
    requests: dict[EngineName, list[TimedRequest]] = defaultdict(list)
    questions = {problem.id: problem.question for problem in read_problems(run)}
    for engine, request in requests_with_ids(read_events(run), Models.load(spec), questions):
        requests[engine].append(request)
    return {
        engine: cache_curve(requests[engine], limits.kv_cache.block_size)
        for engine, limits in spec.engines().items()
        if requests[engine]
    }


def by_split(spec: Deployment, memory: PairMemory, curves: Curves) -> list[Measurement]:
    """Prefix hits and thrashing against the generator's share of KV memories of several sizes.

    Pools that do not hold the largest request have no row.
    """
    hits: list[Row] = []
    thrashing: list[Row] = []
    for name, scale in SCALES.items():
        for share in shares_with(generator_share(spec, memory)):
            pools = divided(spec, memory, share, scale).engines()
            for engine, curve in curves.items():
                blocks = pools[engine].kv_cache.blocks
                if blocks < curve.least:
                    continue
                use = curve.at(blocks)
                at: Row = {
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
        "of every size at once (docs/study.md). A pool too small for what runs at a time would "
        "let requests wait; the model thrashes instead.",
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
