"""The memory of a pair on a CPU, from shapes; the figures that it is held against were measured."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ConfigError
from tts.base.machine_limits import MemoryLimit
from tts.build.checkpoint import open_checkpoint
from tts.build.model_config import known_model, parse_model_config
from tts.build.openvino import memory
from tts.build.openvino.memory import MIB, SERVER, engine_memory, plan_host_memory
from tts.build.openvino.transformer import ScoreColumns, Transformer, save_model
from tts.build.spec import PRECISIONS, load_deployment

ROLES = ("generator", "verifier")


def llama_1b():
    known = known_model(Path("Llama-3.2-1B-Instruct"))
    return parse_model_config(Path("config.json"), known.config)


def wide(layers, hidden, inner, heads, dim):
    """The shape of the models of `scripts/run random_checkpoint`, and of the demo pair."""
    return replace(
        llama_1b(),
        vocab_size=768,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=dim,
        tie_word_embeddings=False,
    )


M25, M100 = wide(6, 576, 1536, (9, 9), 64), wide(9, 1024, 2752, (16, 4), 64)
M300 = wide(12, 1536, 4096, (24, 6), 64)
DEMO_GENERATOR = replace(wide(3, 128, 352, (4, 4), 32), tie_word_embeddings=True)
DEMO_VERIFIER = wide(7, 160, 432, (5, 5), 32)


def spec_of(role, precision, tokens=None):
    spec = load_deployment("demo").engines()[role]
    cache = spec.kv_cache.model_copy(update={"tokens": tokens or spec.kv_cache.tokens})
    return spec.model_copy(update={"precision": precision, "kv_cache": cache})


MEASURED = [
    (DEMO_GENERATOR, "generator", "fp32", None, 203),
    (DEMO_VERIFIER, "verifier", "fp32", None, 653),
    (DEMO_GENERATOR, "generator", "bf16", None, 148),
    (DEMO_VERIFIER, "verifier", "bf16", None, 369),
    (DEMO_GENERATOR, "generator", "int8", None, 209),
    (DEMO_VERIFIER, "verifier", "int8", None, 650),
    (M25, "generator", "fp32", None, 1302),
    (M100, "verifier", "fp32", None, 1647),
    (M25, "generator", "bf16", 8192, 255),
    (M100, "verifier", "bf16", 8192, 383),
    (llama_1b(), "generator", "bf16", 1024, 3009),
    (M300, "verifier", "bf16", 2048, 724),
    (llama_1b(), "generator", "int8", 1024, 1636),
    (M300, "verifier", "int8", 2048, 503),
    (M25, "generator", "int8", 8192, 384),
    (M100, "verifier", "int8", 8192, 383),
    (llama_1b(), "generator", "fp32", 1024, 5814),
    (M300, "verifier", "fp32", 2048, 1345),
]
"""Shape, role, precision, pool (None: the demo's), PSS in MiB with the pool full.

All of the engine inside the process of its Triton model.
"""
SECOND_PROCESS = 45
"""What a process of its own has added to both engines of the demo pair in fp32, MiB."""


@pytest.mark.parametrize(("shape", "role", "precision", "tokens", "measured"), MEASURED)
def test_the_plan_is_within_15_percent_of_what_was_measured(
    shape, role, precision, tokens, measured
):
    planned = engine_memory(shape, spec_of(role, precision, tokens)).resident
    assert planned == pytest.approx((measured + SECOND_PROCESS) * MIB, rel=0.15)


@pytest.mark.parametrize("precision", PRECISIONS["openvino"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("tied", [True, False])
def test_the_weight_file_has_the_planned_size(make_checkpoint, tmp_path, precision, role, tied):
    checkpoint = open_checkpoint(make_checkpoint("Qwen2ForCausalLM", tie_word_embeddings=tied))
    labels = ScoreColumns((3, 4), (1.0, 0.0)) if role == "verifier" else None
    save_model(Transformer(checkpoint, precision, labels).model(), tmp_path)
    planned = engine_memory(checkpoint.config, spec_of(role, precision)).file
    size = (tmp_path / "openvino_model.bin").stat().st_size
    assert planned <= size < planned + 10_000  # norms, biases and the constants of the graph


@given(
    role=st.sampled_from(ROLES),
    precision=st.sampled_from(PRECISIONS["openvino"]),
    blocks=st.integers(16, 10_000),
    more=st.integers(1, 10_000),
)
def test_a_block_costs_its_keys_and_values_and_nothing_else(role, precision, blocks, more):
    shape = llama_1b()
    small, large = (
        engine_memory(shape, spec_of(role, precision, 32 * n)) for n in (blocks, blocks + more)
    )
    each = 2 if precision == "bf16" else 4
    assert large.needed - small.needed == more * 32 * 2 * 16 * 8 * 64 * each
    assert replace(large, kv_cache=0) == replace(small, kv_cache=0)


@pytest.mark.parametrize("precision", PRECISIONS["openvino"])
def test_a_verifier_that_writes_takes_what_a_generator_takes(precision):
    generator, verifier = (spec_of(role, precision, 1024) for role in ROLES)
    steps = {"max_num_tokens": generator.max_num_tokens}
    writer = verifier.model_copy(update={"format": "critique", **steps})
    planned = engine_memory(llama_1b(), writer)
    assert planned == engine_memory(llama_1b(), generator)
    assert planned.needed > engine_memory(llama_1b(), verifier.model_copy(update=steps)).needed


def test_a_pair_is_its_engines_and_its_server():
    plan = plan_host_memory(load_deployment("demo"))
    assert plan.needed == SERVER + sum(engine.needed for engine in plan.engines.values())
    assert plan.resident - plan.needed == sum(e.embedding for e in plan.engines.values())


def test_engines_on_gpus_are_not_planned_here():
    with pytest.raises(ConfigError, match="in the memory of GPUs"):
        plan_host_memory(load_deployment("demo-gpu"))


@pytest.fixture
def demo():
    return load_deployment("demo")


def test_a_pair_that_cannot_fit_is_refused_by_name_and_figure(demo, monkeypatch):
    needed = plan_host_memory(demo).needed
    monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(needed - 1, "this test"))
    with pytest.raises(ConfigError) as caught:
        memory.require_memory(demo)
    figure = f"{needed / 2**30:.2f} GiB"
    assert f"Deployment 'demo' needs {figure} of memory (the generator 0." in caught.value.message
    assert caught.value.message.endswith(f"; there are {figure} in this test.")
    assert "kv_cache.tokens" in str(caught.value.hint)
    monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(needed, "this test"))
    assert memory.require_memory(demo).needed == needed


def test_a_machine_whose_memory_others_use_is_warned_of(demo, monkeypatch):
    plan = plan_host_memory(demo)
    monkeypatch.setattr(memory, "memory_available", lambda: plan.needed - 1)
    assert "are available now" in str(memory.shortage(plan))
    for enough in (plan.needed, None):
        monkeypatch.setattr(memory, "memory_available", lambda found=enough: found)
        assert memory.shortage(plan) is None


def test_a_published_model_is_planned_before_its_download():
    plan = plan_host_memory(load_deployment("qwen-1.5b-math-prm-7b-cpu"))
    assert plan.judged_by == "a classification head (score.0, ReLU, score.2)"
    weights = 28 * 3584 * (2 * 3584 + 2 * 512 + 3 * 18944) + 3584 * 3584 * 4  # int8; the head fp32
    assert plan.engines["verifier"].copies == pytest.approx(weights, rel=0.01)
