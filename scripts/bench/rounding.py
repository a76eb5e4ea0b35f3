"""How often rounding changes a sampled token behind a prefix that is computed in one piece.

Chains are sampled token by token; then their beginnings are read in one piece, as after a restart
or an eviction, and the tokens after that again one by one. From both logits of a place follows the
share of random numbers for which a draw of OpenVINO GenAI's (2026.4) takes another token: by ids,
by probability as the engine draws from large vocabularies, and the least that any draw can have,
half the summed difference of the probabilities.

    scripts/run bench.rounding smollm2-135m-cpu "What is 12 + 30 - 5?"
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from tts.build import paths
from tts.build.manifest import read_engine_config
from tts.build.openvino.export import MODEL_FILE
from tts.build.openvino.runtime import plugin_properties
from tts.build.spec import load_deployment
from tts.problem import Problem
from tts.prompting import Context, Models

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
NEVER_DRAWN = 1e-6
"""Of the likeliest token's probability: tts.engines.pipeline."""


def feed(request: Any, ids: Ints, start: int) -> Floats:
    """The logits after the last of these tokens, a row for each chain."""
    chains, length = ids.shape
    end = start + length
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones((chains, end), np.int64),
        "position_ids": np.tile(np.arange(start, end), (chains, 1)),
        "beam_idx": np.arange(chains, dtype=np.int32),
    }
    logits: Floats = request.infer(inputs)["logits"][:, -1].copy()
    return logits


def spans(logits: Floats, temperature: float, by_probability: bool) -> tuple[Any, Any]:
    """By token, which random numbers from 0 to 1 draw it: from and to; sums are in fp32, as is."""
    weights = np.exp((logits - logits.max()) * np.float32(1 / temperature))
    order = np.arange(len(weights))
    if by_probability:
        order = np.argsort(-logits, kind="stable")
        order = order[weights[order] >= NEVER_DRAWN]
    sums = np.cumsum(weights[order], dtype=np.float32).astype(np.float64)
    low, high = np.zeros(len(weights)), np.zeros(len(weights))
    high[order] = sums / sums[-1]
    low[order[1:]] = high[order[:-1]]
    return low, high


def flips(one: Floats, other: Floats, temperature: float, by_probability: bool) -> float:
    """The share of random numbers that draw another token from the one than from the other."""
    ours, theirs = (spans(each, temperature, by_probability) for each in (one, other))
    same = np.minimum(ours[1], theirs[1]) - np.maximum(ours[0], theirs[0])
    return float(1 - np.maximum(same, 0).sum())


def distance(one: Floats, other: Floats, temperature: float) -> float:
    """Half the summed difference of the probabilities."""
    both = [np.exp((each.astype(np.float64) - each.max()) / temperature) for each in (one, other)]
    return float(np.abs(both[0] / both[0].sum() - both[1] / both[1].sum()).sum() / 2)


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("deployment")
    parser.add_argument("question")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=72)
    args = parser.parse_args()
    spec = load_deployment(args.deployment)
    folder = paths.engine_dir(spec.name, "generator")
    properties = plugin_properties(read_engine_config(folder).precision, 2)
    model = ov.Core().compile_model(folder / MODEL_FILE, "CPU", properties)
    prompt = Context.of(Models.load(spec), Problem("asked", args.question)).generator_ids(())
    ids = np.tile(np.asarray(prompt, np.int64), (args.chains, 1))
    asked, random = len(prompt), np.random.default_rng(0)
    request = model.create_infer_request()
    stepwise = [feed(request, ids, 0)]
    for place in range(asked, asked + args.tokens):
        drawn = [
            np.searchsorted(spans(row, args.temperature, False)[1], random.random(), side="right")
            for row in stepwise[-1]
        ]
        ids = np.concatenate([ids, np.array(drawn, np.int64)[:, None]], axis=1)
        stepwise.append(feed(request, ids[:, place:], place))
    found: dict[str, list[float]] = {"logit": [], "ids": [], "probability": [], "least": []}
    part = args.tokens // 3
    for begin in (part, 2 * part):
        request = model.create_infer_request()
        for place in range(begin, begin + part):
            first = 0 if place == begin else asked + place - 1
            again = feed(request, ids[:, first : asked + place], first)
            for one, other in zip(stepwise[place], again, strict=True):
                found["logit"].append(float(np.abs(one - other).max()))
                found["ids"].append(flips(one, other, args.temperature, False))
                found["probability"].append(flips(one, other, args.temperature, True))
                found["least"].append(distance(one, other, args.temperature))
    print(f"{len(found['ids']):,} places; logits differ by up to {max(found['logit']):.1e}")
    for name, words in (("ids", "in order of ids"), ("probability", "in order of probability")):
        error = np.std(found[name]) / len(found[name]) ** 0.5
        print(f"other tokens {words}: {np.mean(found[name]):.1e} (standard error {error:.0e})")
    print(f"the least possible: {np.mean(found['least']):.1e}")


if __name__ == "__main__":
    main()
