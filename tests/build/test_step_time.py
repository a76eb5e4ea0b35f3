"""The step-time model against numbers that were worked out by hand from the same formulas."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.planned_pair import EIGHT_B, ONE_B, PRM
from tests.published_shapes import LLAMA_1B, LLAMA_8B_VERIFIER

from tts.build.model_config import shape_of
from tts.build.spec import TensorRTEngine
from tts.build.tensorrt.gpus import GPUS
from tts.build.tensorrt.step_time import Affine, Efficiency, ModelShape, Roofline, StepLoad

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
    return StepLoad(prefill_tokens=tokens, prefill_attention=tokens * (cached + tokens / 2))


@pytest.mark.parametrize("batch", DECODE_MS)
def test_decode_steps_of_the_1b_model(batch):
    for gpu, expected in zip(("a100-80g", "h100", "h200"), DECODE_MS[batch], strict=True):
        found = unbounded_ms(roofline(gpu, LLAMA_1B), StepLoad(batch, batch * 500))
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


def test_small_prefills_are_less_efficient():
    model = roofline("h100", LLAMA_8B_VERIFIER, Efficiency(half_tokens=400))
    small, large = (
        tokens / model.cost(StepLoad(0, 0, tokens)).compute_s for tokens in (400, 10**6)
    )
    assert small == pytest.approx(large / 2, rel=0.01)


def test_a_step_has_an_overhead_and_a_small_model_a_shortest_decode():
    model = Roofline(GPUS["h200"], LLAMA_1B)
    assert model.cost(StepLoad(1, 500)).duration_s == LLAMA_1B.min_step_s
    big = model.cost(StepLoad(1024, 1024 * 500))
    assert big.duration_s == pytest.approx(big.memory_s + 0.4e-3)
    assert model.cost(prefill(10)).duration_s > 0.4e-3


def test_prefill_that_rides_along_with_decodes_costs_less_than_a_step_of_its_own():
    model = Roofline(GPUS["h100"], LLAMA_1B)
    decode = model.cost(StepLoad(64, 64 * 500)).duration_s
    alone = model.cost(prefill(50)).duration_s
    both = model.cost(StepLoad(64, 64 * 500, 50, 50 * 25)).duration_s
    assert decode <= both < decode + alone


def test_an_affine_fit():
    fit = Affine(1e-3, 1e-5, 1e-8, 2e-5, 1e-9)
    assert fit.cost(StepLoad()).duration_s == 1e-3
    cost = fit.cost(StepLoad(10, 5000, 100, 0, 1000))
    assert cost.duration_s == pytest.approx(1e-3 + 1e-4 + 5e-5 + 2e-3 + 1e-6)


def test_an_fp8_engine_reads_half_and_computes_at_twice_the_rate():
    """By hand: 0.973 GB of layers, a head of 0.525 GB that stays in 16 bits, 16,384 B of KV."""
    fp8 = TensorRTEngine(kv_precision="fp8")
    small = ModelShape.of(shape_of(ONE_B), "fp8", fp8)
    assert small.kv_bytes == 16_384
    decode_ms = unbounded_ms(roofline("h100", small), StepLoad(64, 64 * 500))
    assert decode_ms == pytest.approx(0.755, rel=0.02)
    large = ModelShape.of(shape_of(PRM), "fp8", fp8, head=False)
    assert unbounded_ms(roofline("h100", large), prefill(1)) == pytest.approx(2.60, rel=0.02)
    assert unbounded_ms(roofline("h100", large), prefill(2048)) == pytest.approx(25.0, rel=0.02)


def test_a_weight_only_precision_reads_less_and_computes_in_16_bits():
    shape = ModelShape.of(shape_of(EIGHT_B), "int4_awq")
    assert shape.body_bytes == pytest.approx(6.979e9 * (0.5 + 2 / 128), rel=0.01)
    whole = ModelShape.of(shape_of(EIGHT_B))
    costs = [roofline("h100", each).cost(prefill(2048)).compute_s for each in (shape, whole)]
    assert costs[0] == costs[1]


def test_a_mixture_of_experts_reads_the_experts_that_its_tokens_are_sent_to():
    """By hand: 32 layers of 8 experts of 3 x 4096 x 14336 parameters, 2 for each token."""
    shape = ModelShape.of(shape_of(Path("Mixtral-8x7B-Instruct-v0.1")))
    all_experts = 2 * 32 * 8 * 3 * 4096 * 14336
    assert shape.expert_bytes == all_experts
    assert shape.read_by(1) - shape.body_bytes == pytest.approx(all_experts * 2 / 8)
    assert shape.read_by(2) - shape.body_bytes == pytest.approx(all_experts * (1 - (3 / 4) ** 2))
    assert shape.read_by(4096) == pytest.approx(shape.body_bytes + all_experts)
    assert shape.body == pytest.approx(12.6e9, rel=0.01)  # active, without head and embedding
    halved = ModelShape.of(
        shape_of(Path("Mixtral-8x7B-Instruct-v0.1")),
        "bf16",
        TensorRTEngine(tensor_parallel=4, expert_parallel=2),
    )
    assert halved.expert_bytes == all_experts / 4


def test_tensor_parallel_decode_by_hand():
    """A rank of 8 reads (13.96 + 1.05) / 8 GB and 16,384 B of KV per token: 0.90 ms on an H100.

    64 all-reduces of 64 tokens: 10 us and 2 x 7/8 x 8192 B x 64 / (0.8 x 450 GB/s) each: 0.80 ms.
    """
    shape = ModelShape.of(shape_of(EIGHT_B), "bf16", TensorRTEngine(tensor_parallel=8))
    assert shape.kv_bytes == 16_384
    cost = roofline("h100", shape).cost(StepLoad(64, 64 * 500))
    assert 1e3 * cost.memory_s == pytest.approx(0.90, rel=0.02)
    assert 1e3 * cost.duration_s == pytest.approx(2.4 + 0.80, rel=0.02)  # 75 us for each layer
    unbounded = replace(shape, min_step_s=0.0)
    assert 1e3 * roofline("h100", unbounded).cost(
        StepLoad(64, 64 * 500)
    ).duration_s == pytest.approx(0.90 + 0.80, rel=0.02)


def test_tensor_parallel_prefill_by_hand():
    """2048 tokens of the 8B verifier on 2 L40S over PCIe: 65.9 ms of products, 4.24 of attention
    by hand at 217 TFLOP/s, half of it on each; 64 all-reduces of 16.8 MB at 25.6 GB/s, 44 ms.
    """
    shape = ModelShape.of(shape_of(PRM), "bf16", TensorRTEngine(tensor_parallel=2), head=False)
    cost = roofline("l40s", shape).cost(prefill(2048))
    assert 1e3 * cost.compute_s == pytest.approx((131.6 + 5.06) / 2, rel=0.03)
    exchanged = cost.duration_s - max(cost.compute_s, cost.memory_s)
    assert 1e3 * exchanged == pytest.approx(64 * (0.03 + 0.655), rel=0.02)


@given(
    ways=st.sampled_from([1, 2, 4, 8]),
    decodes=st.integers(0, 512),
    prompt=st.integers(0, 8192),
    gpu=st.sampled_from(sorted(GPUS)),
)
def test_a_rank_never_costs_more_than_the_whole_but_for_what_it_exchanges(
    ways, decodes, prompt, gpu
):
    load = StepLoad(decodes, decodes * 500, prompt, prompt * prompt / 2)
    if not decodes and not prompt:
        return
    whole, rank = (
        Roofline(GPUS[gpu], ModelShape.of(shape_of(EIGHT_B), "bf16", placement)).cost(load)
        for placement in (TensorRTEngine(), TensorRTEngine(tensor_parallel=ways))
    )
    assert rank.memory_s <= whole.memory_s
    assert rank.compute_s <= whole.compute_s * (1 + 1e-9)
    link = GPUS[gpu].link
    least = 64 * link.latency_s if ways > 1 else 0.0
    assert rank.duration_s >= least
