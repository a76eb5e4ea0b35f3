"""Tables of what the engines hold and are sent: memory, tokens per request."""

from __future__ import annotations

from pathlib import Path

from tts.build.spec import Deployment
from tts.runs.measured_run import MeasuredRun
from tts.runs.records import ENGINES

from .kv_memory import PairMemory, divided, generator_share
from .measurement import Measurement, Row

MIB = 1 << 20
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The generator's shares of the KV memory for which something is computed."""
TOKEN_BINS = 20


def memory_by_split(spec: Deployment, memory: PairMemory) -> Measurement:
    """What each part of the pair takes, against the generator's share of the KV memory."""
    rows: list[Row] = []
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
    notes = ["From the memory plan (docs/memory-plan.md): the KV memory is what both pools take."]
    return Measurement("memory-by-split", rows, "modelled", notes)


def shares_with(present: float) -> list[float]:
    """The shares for which something is computed, the present one among them."""
    return sorted({*SHARES, present})


def tokens_per_request(run: Path) -> Measurement:
    """How many requests of the base had how many tokens: prompt and generated ones together."""
    requests = MeasuredRun.load(run).measures.requests
    rows: list[Row] = [
        {
            "engine": engine,
            "from tokens": round(low, 1),
            "to tokens": round(high, 1),
            "requests": count,
        }
        for engine in ENGINES
        for low, high, count in requests[engine].scheduled_tokens.histogram(TOKEN_BINS)
    ]
    notes = ["Bins are equally wide on a logarithmic axis."]
    return Measurement("tokens-per-request", rows, notes=notes)
