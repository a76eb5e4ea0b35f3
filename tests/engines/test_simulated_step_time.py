"""The step-time model against numbers that were worked out by hand from the same formulas."""

import pytest

from tts.engines.simulated import (
    GPUS,
    LLAMA_1B,
    LLAMA_8B_VERIFIER,
    Affine,
    Efficiency,
    Load,
    Roofline,
)

IDEAL = Efficiency(half_tokens=0, overhead_s=0)
DECODE_MS = {  # batch: milliseconds at 500 tokens of context, before the shortest step
    1: (1.53, 0.93, 0.65),
    16: (1.68, 1.02, 0.71),
    64: (2.16, 1.31, 0.92),
    256: (4.09, 2.49, 1.74),
    512: (6.94, 4.06, 2.83),
    1024: (13.9, 7.20, 5.02),
}


def roofline(gpu, model, efficiency=IDEAL):
    return Roofline(GPUS[gpu], model, efficiency)


def unbounded_ms(step_time, load):
    cost = step_time.cost(load)
    return 1e3 * max(cost.compute_s, cost.memory_s)


def prefill(tokens, cached=0):
    return Load(prefill_tokens=tokens, prefill_attention=tokens * (cached + tokens / 2))


@pytest.mark.parametrize("batch", DECODE_MS)
def test_decode_steps_of_the_1b_model(batch):
    for gpu, expected in zip(("a100-80g", "h100", "h200"), DECODE_MS[batch], strict=True):
        found = unbounded_ms(roofline(gpu, LLAMA_1B), Load(batch, batch * 500))
        assert found == pytest.approx(expected, rel=0.02), gpu


@pytest.mark.parametrize(
    ("gpu", "ms", "tokens_per_s", "floor_ms", "free_tokens"),
    [
        ("a100-80g", 156, 13_200, 8.6, 115),
        ("h100", 49, 42_000, 5.2, 220),
        ("h200", 49, 42_000, 3.6, 150),
    ],
)
def test_prefill_of_the_verifier(gpu, ms, tokens_per_s, floor_ms, free_tokens):
    verifier = roofline(gpu, LLAMA_8B_VERIFIER)
    found = unbounded_ms(verifier, prefill(2048))
    assert found == pytest.approx(ms, rel=0.03)
    assert 2048e3 / found == pytest.approx(tokens_per_s, rel=0.04)
    assert unbounded_ms(verifier, prefill(1)) == pytest.approx(floor_ms, rel=0.02)
    assert unbounded_ms(verifier, prefill(round(0.95 * free_tokens))) == pytest.approx(
        floor_ms, rel=0.02
    )
    assert unbounded_ms(verifier, prefill(round(1.1 * free_tokens))) > 1.03 * floor_ms


@pytest.mark.parametrize(
    ("tokens", "a100", "h100"),
    [
        (81_200, 7.27, 2.29),
        (10_550, 0.94, 0.30),
        (324_800, 29.1, 9.17),
        (41_750, 3.74, 1.18),
        (1_299_200, 116, 36.7),
        (166_550, 14.9, 4.70),
    ],
)
def test_verifier_seconds_of_a_problem_at_half_the_peak(tokens, a100, h100):
    half = Efficiency(compute=0.5, half_tokens=0, overhead_s=0)
    for gpu, expected in (("a100-80g", a100), ("h100", h100)):
        found = unbounded_ms(roofline(gpu, LLAMA_8B_VERIFIER, half), Load(prefill_tokens=tokens))
        assert found / 1e3 == pytest.approx(expected, rel=0.02)


def test_small_prefills_are_less_efficient():
    model = roofline("h100", LLAMA_8B_VERIFIER, Efficiency(half_tokens=400))
    small, large = (tokens / model.cost(Load(0, 0, tokens)).compute_s for tokens in (400, 10**6))
    assert small == pytest.approx(large / 2, rel=0.01)


def test_a_step_has_an_overhead_and_a_small_model_a_shortest_decode():
    model = Roofline(GPUS["h200"], LLAMA_1B)
    assert model.cost(Load(1, 500)).duration_s == LLAMA_1B.min_step_s
    big = model.cost(Load(1024, 1024 * 500))
    assert big.duration_s == pytest.approx(big.memory_s + 0.4e-3)
    assert model.cost(prefill(10)).duration_s > 0.4e-3


def test_prefill_that_rides_along_with_decodes_costs_less_than_a_step_of_its_own():
    model = Roofline(GPUS["h100"], LLAMA_1B)
    decode = model.cost(Load(64, 64 * 500)).duration_s
    alone = model.cost(prefill(50)).duration_s
    both = model.cost(Load(64, 64 * 500, 50, 50 * 25)).duration_s
    assert decode <= both < decode + alone


def test_what_a_load_does_not_name_costs_nothing():
    fit = Affine(0.0, 1.0, 1.0, 1.0, 1.0)
    assert fit.cost(Load()).duration_s == 0.0
    assert fit.cost(Load(3)).duration_s == 3.0


def test_an_affine_fit():
    fit = Affine(1e-3, 1e-5, 1e-8, 2e-5, 1e-9)
    cost = fit.cost(Load(10, 5000, 100, 0, 1000))
    assert cost.duration_s == pytest.approx(1e-3 + 1e-4 + 5e-5 + 2e-3 + 1e-6)
