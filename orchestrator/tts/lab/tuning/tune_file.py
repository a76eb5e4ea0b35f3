"""tune.json: a tune result as it is kept, and step times fitted to it, for `tts simulate`.

An engine with n requests in flight that takes step_s + n * request_s for a step answers n / that
requests a second, so seconds per request are request_s + step_s / n: a straight line over 1/n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tts.base.errors import RunError
from tts.base.user_paths import is_folder
from tts.build.spec import Deployment, Role
from tts.engines.simulated import Affine
from tts.runs.folder import read_json

from .analysis import SHARE, EngineResult
from .recorded_requests import RecordedRequests

RESULT = "tune.json"


def to_json(
    spec: Deployment,
    source: str,
    recorded: RecordedRequests,
    results: Sequence[EngineResult],
    *,
    stopped: bool = False,
) -> dict[str, Any]:
    """The measurements, their requests, and what follows from them.

    Nothing follows from measurements that were stopped; then the result says so.
    """
    return {
        **({"stopped": True} if stopped else {}),
        "deployment": spec.name,
        "requests_from": source,
        "share": SHARE,
        "engines": {
            result.role: {
                "unit": result.unit,
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
    scorings, cache = recorded.scorings, spec.compiled_pair()[1].kv_cache
    if spec.critiques:
        return {
            "requests": len(scorings),
            "prompt_tokens": _mean([len(scoring.ids) for scoring in scorings]),
            "computed_tokens": 1.0,  # as the generator's
            "generated_tokens": _mean([scoring.critique_tokens for scoring in scorings]),
        }
    block = cache.block_size if cache.reuse else cache.tokens  # whole blocks are reused
    return {
        "requests": len(scorings),
        "prompt_tokens": _mean([len(scoring.ids) for scoring in scorings]),
        "computed_tokens": _mean([len(s.ids) - s.cached // block * block for s in scorings]),
        "generated_tokens": 1.0,
    }


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def read_fits(file: Path) -> dict[Role, Affine]:
    """Both engines' step times from a tune result or its folder; raises RunError."""
    if is_folder(file):
        file = file / RESULT
    result = read_json(file, f"There is no tune result {file}")
    try:
        engines = result["engines"]
        fit = fit_decode if engines["verifier"].get("unit") == "critiques" else fit_prefill
        return {
            "generator": fit_decode(engines["generator"]),
            "verifier": fit(engines["verifier"]),
        }
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise RunError(
            f"{file} holds no tune result that a step time can be fitted to: {error!r}",
            hint="Make one with: tts tune DEPLOYMENT",
        ) from error


def fit_decode(engine: Mapping[str, Any]) -> Affine:
    """The decoding time of an engine that writes: a step gives each request one token.

    Raises ValueError.
    """
    points = [
        (level["load"], 1 / level["tokens_per_s"])
        for level in engine["levels"]
        if level["load"] <= engine["max_batch_size"]
    ]
    step_s, decode_s = fit_line(points)
    return Affine(step_s, decode_s=decode_s)


def fit_prefill(engine: Mapping[str, Any]) -> Affine:
    """A verifier's step time: a step computes what is new in each request. Raises ValueError."""
    computed = engine["computed_tokens"]
    points = [
        (parallel, 1 / level["requests_per_s"])
        for level in engine["levels"]
        if (parallel := level["requests_per_s"] * level["latency_s"]) <= engine["max_batch_size"]
        and parallel * computed <= engine["max_num_tokens"]
    ]
    step_s, request_s = fit_line(points)
    return Affine(step_s, prefill_token_s=request_s / computed)


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(step_s, each_s) of (n, seconds per piece of work), none negative; raises ValueError.

    Least squares of the relative error, so that the fast loads count as much as the slow ones.
    """
    if len({n for n, _ in points}) < 2:
        raise ValueError("fewer than two loads within the engine's batch were measured")
    # y ~ each + step * x, weighted by 1/y: rows (1/y, x/y) against 1
    rows = [(1 / y, 1 / (n * y)) for n, y in points]
    aa, bb = sum(a * a for a, _ in rows), sum(b * b for _, b in rows)
    ab, a1, b1 = sum(a * b for a, b in rows), sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    each, step = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    if each < 0:
        return b1 / bb, 0.0
    if step < 0:
        return 0.0, a1 / aa
    return step, each
