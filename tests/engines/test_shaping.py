"""Penalties and a least length change what is drawn as their formulas say."""

import numpy as np
import pytest
from msgspec.structs import replace
from tests.engines.host_requests import prompt, sampled
from tests.engines.numpy_llama import llama_logits

from tts.base import paths
from tts.engines import pipeline
from tts.engines.generate_request import GenerateRequest


def penalised(logits, asked, given, request):
    """Logits after the penalties: as vLLM, transformers and OpenAI define them."""
    changed = logits.astype(np.float64).copy()
    seen = sorted({*asked, *given})
    factor = request.repetition_penalty
    changed[seen] = np.where(changed[seen] > 0, changed[seen] / factor, changed[seen] * factor)
    for token in set(given):
        changed[token] -= request.presence_penalty + request.frequency_penalty * given.count(token)
    return changed


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.6},
        {"presence_penalty": 1.5},
        {"frequency_penalty": 0.8},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    ],
    ids=lambda fields: ",".join(f"{name}={value}" for name, value in fields.items()),
)
def test_penalties_are_those_of_their_formulas(generator, pair, fields):
    folder = paths.engine_dir(pair.name, "generator")
    checkpoint = pair.generator.checkpoint
    assert folder.is_dir()
    request = GenerateRequest(prompt(3, 12), 16, **fields)
    (response,) = generator.run(request)
    asked, given = request.input_ids.tolist(), []
    for token in response.token_ids:
        logits = llama_logits(checkpoint, np.array(asked + given))[-1]
        changed = penalised(logits, asked, given, request)
        assert changed[token] >= changed.max() - 1e-3  # equal ones but for rounding
        given.append(token)


def test_penalties_change_an_output_and_do_not_outlive_their_request(generator):
    plain = GenerateRequest(prompt(3, 12), 16)
    before, changed, after = (
        generator.run(each)[0].token_ids
        for each in (plain, replace(plain, repetition_penalty=3.0), plain)
    )
    assert before == after != changed


@pytest.mark.parametrize("min_p", [0.02, 0.3, 1.0])
def test_no_token_is_drawn_that_is_less_likely_than_a_part_of_the_likeliest(generator, pair, min_p):
    request = sampled(5, n=16, min_p=min_p)
    (response,) = generator.run(request)
    ids = np.array([*request.input_ids.tolist(), *response.token_ids])
    logits = llama_logits(pair.generator.checkpoint, ids)[len(request.input_ids) - 1 : -1]
    for row, token in zip(logits, response.token_ids, strict=True):
        assert row[token] >= row.max() + np.log(min_p) - 1e-3
    if min_p == 1:
        (greedy,) = generator.run(replace(request, top_p=0.0, min_p=0.0))
        assert response.token_ids == greedy.token_ids


@pytest.mark.parametrize("small", [0, 4096])
def test_a_draw_goes_through_a_large_vocabulary_by_probability(generator, pair, monkeypatch, small):
    monkeypatch.setattr(pipeline, "_SMALL_VOCABULARY", small)
    requests = [replace(sampled(5, n=1), seed=seed) for seed in range(40)]
    row = llama_logits(pair.generator.checkpoint, requests[0].input_ids)[-1].astype(np.float64)
    order = np.argsort(-row) if small == 0 else np.arange(len(row))
    sums = np.exp(row - row.max())[order].cumsum()
    for request, response in zip(requests, generator.run(*requests), strict=True):
        # the library's generator is of this kind, and a draw takes its next 32 bits
        bits = np.random.RandomState(pipeline.fold_seed(request.seed))
        drawn = sums[-1] * bits.randint(0, 2**32, dtype=np.uint32) / 2**32
        assert response.token_ids == [order[np.searchsorted(sums, drawn, side="right")]]


def test_an_output_does_not_end_before_its_least_length(generator):
    (free,) = generator.run(sampled(5, n=20))
    end = free.token_ids[2]
    (short,) = generator.run(sampled(5, n=20, end_id=end))
    (longer,) = generator.run(sampled(5, n=20, end_id=end, min_tokens=9))
    assert len(short.token_ids) <= 2
    assert len(longer.token_ids) >= 9
    assert end not in longer.token_ids[:9]
