"""A tune result as it is kept: tune.json in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tts.build.spec import Deployment, Role

from .analysis import SHARE, UNITS, Proposal, knee, levels
from .measure import Measured
from .requests import Recorded


def to_json(
    spec: Deployment,
    source: str,
    recorded: Recorded,
    measured: Sequence[Measured],
    proposals: Sequence[Proposal],
) -> dict[str, Any]:
    """What was measured, from which requests, and what follows from it."""
    return {
        "deployment": spec.name,
        "requests_from": source,
        "share": SHARE,
        "engines": {
            engine.role: {
                "unit": UNITS[engine.role],
                **_requests(engine.role, recorded, spec),
                "max_batch_size": spec.engines()[engine.role].max_batch_size,
                "max_num_tokens": spec.engines()[engine.role].max_num_tokens,
                "levels": [asdict(level) for level in levels(engine.samples)],
                "samples": [asdict(sample) for sample in engine.samples],
                "knee": asdict(knee(engine.samples)),
            }
            for engine in measured
            if levels(engine.samples)
        },
        "policy": {
            proposal.role: {
                "present": proposal.present,
                "proposed": proposal.value,
                "why": proposal.why,
            }
            for proposal in proposals
        },
    }


def _requests(role: Role, recorded: Recorded, spec: Deployment) -> dict[str, Any]:
    """How many there are and how long they are on average, in tokens."""
    if role == "generator":
        calls = recorded.generations
        return {
            "requests": len(calls),
            "prompt_tokens": _mean([len(call.input_ids) for call in calls]),
            "computed_tokens": 1.0,  # the prompt is in the cache, but for its last token
            "generated_tokens": _mean([call.max_new_tokens for call in calls]),
        }
    scorings, cache = recorded.scorings, spec.verifier.kv_cache
    block = cache.block_size if cache.reuse else cache.tokens  # whole blocks are reused
    return {
        "requests": len(scorings),
        "prompt_tokens": _mean([len(scoring.ids) for scoring in scorings]),
        "computed_tokens": _mean([len(s.ids) - s.known // block * block for s in scorings]),
        "generated_tokens": 1.0,
    }


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
