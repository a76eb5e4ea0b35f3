"""tune.json: a tune result as it is kept in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tts.build.spec import Deployment, Role

from .analysis import SHARE, UNITS, EngineResult
from .requests import RecordedRequests

RESULT = "tune.json"


def to_json(
    spec: Deployment,
    source: str,
    recorded: RecordedRequests,
    results: Sequence[EngineResult],
    *,
    stopped: bool = False,
) -> dict[str, Any]:
    """What was measured, with which requests, and what follows from it.

    Nothing follows from measurements that were stopped; then the result says so. Results of older
    versions hold `knee` in place of `saturation_point`; readers need neither.
    """
    return {
        **({"stopped": True} if stopped else {}),
        "deployment": spec.name,
        "requests_from": source,
        "share": SHARE,
        "engines": {
            result.role: {
                "unit": UNITS[result.role],
                **_requests(result.role, recorded, spec),
                "max_batch_size": spec.engines()[result.role].max_batch_size,
                "max_num_tokens": spec.engines()[result.role].max_num_tokens,
                "levels": [asdict(level) for level in result.levels],
                "samples": [asdict(sample) for sample in result.samples],
                "saturation_point": asdict(result.saturation),
            }
            for result in results
            if result.levels
        },
        "policy": {
            proposal.role: {
                "present": proposal.present,
                "proposed": proposal.value,
                "why": proposal.why,
            }
            for result in results
            if not stopped and (proposal := result.proposal)
        },
    }


def _requests(role: Role, recorded: RecordedRequests, spec: Deployment) -> dict[str, Any]:
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
        "computed_tokens": _mean([len(s.ids) - s.cached // block * block for s in scorings]),
        "generated_tokens": 1.0,
    }


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
