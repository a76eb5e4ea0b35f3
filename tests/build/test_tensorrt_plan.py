"""The memory plan: against hand-worked numbers and public logs, and as properties of any plan."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tts.build.errors import CheckpointError, ConfigError
from tts.build.model_config import ModelConfig, read_model_config
from tts.build.spec import (
    Deployment,
    GeneratorSpec,
    VerifierSpec,
    bundled_deployments,
    load_deployment,
)
from tts.build.tensorrt import contract
from tts.build.tensorrt.engine_memory import parameters, ranks_of
from tts.build.tensorrt.gpus import GIB, GPUS
from tts.build.tensorrt.kv_split import Limit, Pools, Side, search_split
from tts.build.tensorrt.memory_plan import SAFETY, check_pools, plan_memory
from tts.build.tensorrt.model_shape import shape_of
from tts.build.tensorrt.roofline import Roofline, roofline

ONE_B, EIGHT_B, PRM = (
    Path("/nowhere") / name
    for name in (
        "Llama-3.2-1B-Instruct",
        "Llama-3.1-8B-Instruct",
        "Llama3.1-8B-PRM-Deepseek-Data",
    )
)

# Worked by hand from the published shapes: billions of parameters, of layers, of the head,
# GB of bf16 weights, KV bytes per token, GFLOPs per token of layers and with the head,
# FLOPs of attention per token and token of context.
HAND_WORKED = {
    ONE_B: (1.236, 0.973, 0.263, 2.47, 32_768, 1.95, 2.47, 131_072),
    PRM: (8.030, 6.979, 0.525, 16.06, 131_072, 13.96, 15.01, 524_288),
}


def generator(**fields: Any) -> GeneratorSpec:
    return GeneratorSpec.model_validate(
        {
            "checkpoint": ONE_B,
            "precision": "bf16",
            "max_batch_size": 256,
            "max_num_tokens": 4096,
            "max_seq_len": 2048,
            "kv_cache": {"tokens": 2048},
            "in_flight_requests": 256,
        }
        | fields
    )


def verifier(**fields: Any) -> VerifierSpec:
    return VerifierSpec.model_validate(
        {
            "checkpoint": PRM,
            "precision": "bf16",
            "max_batch_size": 64,
            "max_num_tokens": 8192,
            "max_seq_len": 2048,
            "kv_cache": {"tokens": 2048},
            "in_flight_tokens": 32768,
        }
        | fields
    )


def deployment(
    gpu: str = "h100",
    generator_fields: dict[str, Any] | None = None,
    verifier_fields: dict[str, Any] | None = None,
) -> Deployment:
    return Deployment(
        name="pair",
        target="tensorrt",
        generator=generator(**(generator_fields or {})),
        verifier=verifier(**(verifier_fields or {})),
        tensorrt={"gpu": gpu},  # type: ignore[arg-type]
    )


def near(value: float, tolerance: float = 0.01) -> Any:
    return pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize("checkpoint", HAND_WORKED, ids=lambda path: path.name)
def test_hand_worked_numbers(checkpoint: Path) -> None:
    total, body, head, weights, kv, flops, flops_with_head, attention = HAND_WORKED[checkpoint]
    shape = shape_of(checkpoint)
    counted = parameters(shape)
    spec = generator(checkpoint=checkpoint)
    (rank,) = ranks_of(shape, spec)
    cost = roofline(shape, spec, GPUS["h100"])
    assert counted.total == near(total * 1e9)
    assert counted.body == near(body * 1e9)
    assert counted.head == near(head * 1e9)
    assert 2 * counted.total == near(weights * 1e9)
    copied_head = 2 * counted.head if counted.tied else 0
    assert rank.weights - copied_head == near(weights * 1e9)
    assert rank.kv_bytes_per_token == kv
    assert cost.body_flops == near(flops * 1e9)
    assert cost.body_flops + cost.head_flops == near(flops_with_head * 1e9)
    assert cost.attention_flops == attention


def of(checkpoint: Path, gpu: str) -> Roofline:
    return roofline(shape_of(checkpoint), generator(checkpoint=checkpoint), GPUS[gpu])  # type: ignore[index]


@pytest.mark.parametrize(
    ("gpu", "batch", "milliseconds"),
    [
        ("a100-80g", 1, 1.53), ("h100", 1, 0.93), ("h200", 1, 0.65),
        ("a100-80g", 64, 2.16), ("h100", 64, 1.31), ("h200", 64, 0.92),
        ("a100-80g", 512, 6.94), ("h100", 512, 4.06), ("h200", 512, 2.83),
        ("a100-80g", 1024, 13.9), ("h100", 1024, 7.20), ("h200", 1024, 5.02),
    ],
)  # fmt: skip
def test_hand_worked_decode_steps(gpu: str, batch: int, milliseconds: float) -> None:
    assert 1e3 * of(ONE_B, gpu).decode_s(batch, context=500) == near(milliseconds, 0.015)


@pytest.mark.parametrize(("gpu", "milliseconds"), [("a100-80g", 156), ("h100", 49)])
def test_hand_worked_prefill_of_2048_tokens(gpu: str, milliseconds: float) -> None:
    assert 1e3 * of(PRM, gpu).prefill_s(1, 2048) == near(milliseconds, 0.03)


def test_small_prefills_cost_as_much_as_reading_the_weights() -> None:
    assert 1e3 * of(PRM, "a100-80g").prefill_s(1, 1) == near(9.2)  # 8.6 for the layers alone


def test_estimates_bound_what_public_logs_show() -> None:
    # DeepSeek-R1-Distill-Qwen-1.5B, int4 weight-only, defaults of trtllm-build 0.17:
    # "Allocated 921.51 MiB for execution context memory."
    qwen = dataclasses.replace(
        shape_of(ONE_B),
        vocab_size=151_936,
        hidden_size=1536,
        num_layers=28,
        num_heads=12,
        num_kv_heads=2,
        head_dim=128,
        intermediate_size=8960,
    )
    spec = generator(max_batch_size=2048, max_num_tokens=8192)
    (rank,) = ranks_of(qwen, spec)
    assert 921.51 * 2**20 < rank.activations < 1.5 * 921.51 * 2**20
    # docs of trtllm-bench, max_batch_size 4096: "Allocated 1.14 GB GPU memory for runtime buffers",
    # "4.35 GB GPU memory for decoder". Of GPT-J-6B: only its KV takes 229,376 bytes per token.
    gptj = dataclasses.replace(qwen, vocab_size=50_400)
    (rank,) = ranks_of(gptj, generator(max_batch_size=4096, max_num_tokens=8192))
    assert (1.14 + 4.35) * GIB < rank.logits < 1.2 * (1.14 + 4.35) * GIB


def test_the_verifier_keeps_generation_logits() -> None:
    shape = shape_of(PRM)
    (plain,) = ranks_of(shape, generator(checkpoint=PRM, max_batch_size=64))
    (scoring,) = ranks_of(shape, verifier())
    assert scoring.logits - plain.logits == 8 * 64 * 128_256 * 4


def test_precisions_by_size() -> None:
    shape = shape_of(PRM)
    sizes = {
        precision: ranks_of(shape, generator(checkpoint=PRM, precision=precision))[0].weights
        for precision in ("int4_awq", "fp8", "int8", "bf16", "fp16")
    }
    assert list(sizes.values()) == sorted(sizes.values())
    counted = parameters(shape)
    ends = 2 * (counted.embedding + counted.head)  # stay in 16 bits
    assert sizes["fp8"] == near(counted.body + ends, 0.001)
    # half a byte per weight, and two bytes for the scale of 128
    assert sizes["int4_awq"] == near(counted.body * (0.5 + 2 / 128) + ends, 0.005)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_tensor_parallel_split(tp: int) -> None:
    shape = shape_of(PRM)
    (whole,) = ranks_of(shape, generator(checkpoint=PRM))
    ranks = ranks_of(shape, generator(checkpoint=PRM, tensorrt={"tensor_parallel": tp}))
    assert len(ranks) == tp
    assert len(set(ranks)) == 1
    assert ranks[0].kv_bytes_per_token == 131_072 // min(tp, 8)  # 8 KV heads, then copies
    if tp <= 8:
        # embedding and norms are whole on every rank
        split = whole.streamed / tp
        assert split <= ranks[0].streamed < 1.001 * split
    assert ranks[0].weights - ranks[0].streamed == whole.weights - whole.streamed
    assert ranks[0].activations <= whole.activations


def test_pipeline_split() -> None:
    shape = shape_of(PRM)
    (whole,) = ranks_of(shape, generator(checkpoint=PRM))
    ranks = ranks_of(shape, generator(checkpoint=PRM, tensorrt={"pipeline_parallel": 3}))
    assert [rank.kv_bytes_per_token for rank in ranks] == [4096 * n for n in (11, 11, 10)]
    assert sum(rank.weights for rank in ranks) == whole.weights
    assert [bool(rank.logits) for rank in ranks] == [False, False, True]


MIXTURES = {
    # published: total and active parameters, billions
    "mixtral-8x7b": (46.7, 12.9, {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
        "max_position_embeddings": 32768, "sliding_window": None,
    }),
    "qwen1.5-moe-a2.7b": (14.3, 2.7, {
        "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
        "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
        "max_position_embeddings": 8192, "decoder_sparse_step": 1,
    }),
    "qwen3-30b-a3b": (30.5, 3.3, {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "vocab_size": 151936, "max_position_embeddings": 40960, "mlp_only_layers": [],
    }),
}  # fmt: skip


def mixture(folder: Path, name: str, **fields: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(MIXTURES[name][2] | fields))
    return folder


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_experts(tmp_path: Path, name: str) -> None:
    total, active, _ = MIXTURES[name]
    folder = mixture(tmp_path, name)
    shape = shape_of(folder)
    counted = parameters(shape)
    assert counted.total == near(total * 1e9)
    used = counted.active + counted.embedding + counted.head
    assert used == near(active * 1e9, 0.03) or counted.active + counted.head == near(
        active * 1e9, 0.12
    )  # Qwen1.5's card leaves the embedding out
    whole = ranks_of(shape, generator(checkpoint=folder))[0]
    sliced = {"tensor_parallel": 4}
    spread = sliced | {"expert_parallel": 4}
    for split in (sliced, spread):
        rank = ranks_of(shape, generator(checkpoint=folder, tensorrt=split))[0]
        assert whole.streamed / 4 < rank.streamed < 1.02 * whole.streamed / 4
    with pytest.raises(CheckpointError, match="architectures"):
        read_model_config(folder)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers"),
        ({"num_experts_per_tok": 200}, "num_experts_per_tok is 200"),
        ({"num_experts": None}, "no field num_experts"),
    ],
)
def test_refused_mixtures(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        shape_of(mixture(tmp_path, "qwen3-30b-a3b", **fields))


def test_a_pair_on_one_gpu() -> None:
    plan = plan_memory(deployment("h100"))
    (gpu,) = plan.gpus
    assert gpu.total == GPUS["h100"].memory
    assert gpu.fixed + sum(gpu.kv.values()) + gpu.free == gpu.total
    assert SAFETY * gpu.total <= gpu.free < (SAFETY + 0.01) * gpu.total
    assert plan.shared
    assert plan.searched.seconds <= plan.plain.seconds


def test_scarce_memory_goes_where_it_saves_most_time() -> None:
    plan = plan_memory(deployment("a100-40g"))
    assert plan.searched.seconds < 0.7 * plan.plain.seconds
    assert plan.searched.verifier > plan.plain.verifier


def test_without_reuse_the_verifier_needs_less_of_the_memory() -> None:
    kv = {"kv_cache": {"tokens": 2048, "reuse": False}}
    with_reuse = plan_memory(deployment("a100-40g")).searched
    without = plan_memory(deployment("a100-40g", verifier_fields=kv)).searched
    assert without.verifier < with_reuse.verifier
    assert without.seconds > 2 * with_reuse.seconds


def test_smaller_precisions_leave_more_for_the_caches() -> None:
    left = [
        sum(plan_memory(deployment("h100", {}, {"precision": precision})).gpus[0].kv.values())
        for precision in ("bf16", "int8", "fp8", "int4_awq")
    ]
    assert left == sorted(left)


def test_fp8_begins_with_compute_capability_8_9() -> None:
    for name, facts in GPUS.items():
        capability = tuple(map(int, contract.compute_capability(name).split(".")))
        runs_fp8 = contract.precision_problem(name, "fp8") is None
        assert (facts.fp8_flops is not None) == runs_fp8 == (capability >= (8, 9))


def test_engines_on_gpus_of_their_own_do_not_divide() -> None:
    plan = plan_memory(deployment("h100", {}, {"tensorrt": {"gpus": [[1]]}}))
    assert not plan.shared
    assert [gpu.device for gpu in plan.gpus] == [0, 1]
    for gpu, role in zip(plan.gpus, ("generator", "verifier"), strict=True):
        assert {place.role for place in gpu.ranks} == {role}
        assert gpu.free >= SAFETY * gpu.total
    together = plan_memory(deployment("h100"))
    for role, engine in plan.engines.items():
        assert engine.tokens > together.engines[role].tokens


def test_replicas_and_parallelism() -> None:
    plan = plan_memory(
        deployment(
            "h100",
            {"tensorrt": {"gpus": [[0], [1], [2]]}},
            {"tensorrt": {"tensor_parallel": 2, "gpus": [[1, 3]]}},
        )
    )
    placed = [
        (gpu.device, place.role, place.replica, place.rank)
        for gpu in plan.gpus
        for place in gpu.ranks
    ]
    assert placed == [
        (0, "generator", 0, 0),
        (1, "generator", 1, 0),
        (1, "verifier", 0, 0),
        (2, "generator", 2, 0),
        (3, "verifier", 0, 1),
    ]


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("a100-80g", {"precision": "fp8"}, {}, ["generator.precision is 'fp8'", "a100-80g", "bf16"]),
    ("b200", {}, {"precision": "int4_awq"}, ["verifier.precision is 'int4_awq'", "b200"]),
    ("b200", {}, {"precision": "int8"}, ["verifier.precision is 'int8'", "fp8"]),
    (
        "h100",
        {"tensorrt": {"tensor_parallel": 3}},
        {},
        ["tensor_parallel is 3", "32 attention heads"],
    ),
    ("h100", {"tensorrt": {"pipeline_parallel": 17}}, {}, ["pipeline_parallel is 17", "16 layers"]),
    (
        "h100",
        {"tensorrt": {"tensor_parallel": 2, "expert_parallel": 2}},
        {},
        ["generator.tensorrt.expert_parallel is 2", "no experts"],
    ),
    (
        "rtx4090",
        {"checkpoint": EIGHT_B},
        {},
        ["do not fit GPU 0", "weights 14.96 GiB", "tensorrt.gpus", "smaller precision"],
    ),
    (
        "rtx4090",
        {"max_seq_len": 65_536, "kv_cache": {"tokens": 65_536}},
        {},
        ["left for KV caches on GPU 0", "generator.max_seq_len = 65536", "lower max_seq_len"],
    ),
]


@pytest.mark.parametrize(("gpu", "first", "second", "words"), REFUSED)
def test_refused_plans(
    gpu: str, first: dict[str, Any], second: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_memory(deployment(gpu, first, second))
    for word in ["'pair'", *words]:
        assert word in str(caught.value)


def test_only_target_tensorrt_is_planned() -> None:
    with pytest.raises(ConfigError, match="target is 'openvino'"):
        plan_memory(load_deployment("demo"))


def test_pools_of_the_file_that_do_not_fit() -> None:
    check_pools(deployment())
    greedy = deployment("h100", {}, {"kv_cache": {"tokens": 600_000}})
    with pytest.raises(ConfigError, match=r"verifier.kv_cache.tokens = 600000 .* GPU 0") as caught:
        check_pools(greedy)
    assert "tts plan pair --write" in str(caught.value.hint)


TENSORRT = [name for name in bundled_deployments() if load_deployment(name).target == "tensorrt"]


@pytest.mark.parametrize("name", TENSORRT)
def test_bundled_deployments_hold_what_is_planned(name: str) -> None:
    bundled = load_deployment(name)
    plan = plan_memory(bundled)
    assert bundled.name == name
    for role, engine in plan.engines.items():
        assert engine.tokens == bundled.engines()[role].kv_cache.tokens
        assert engine.full_sequences >= 1
        assert engine.beams >= 16
    check_pools(bundled)
    assert bundled.generator.max_batch_size > bundled.verifier.max_batch_size
    assert bundled.generator.max_num_tokens < bundled.verifier.max_num_tokens


def test_the_demo_pair_fits_any_gpu() -> None:
    demo = load_deployment("demo-gpu")
    (gpu,) = plan_memory(demo).gpus
    assert gpu.total - gpu.free < 3 * GIB


gpus = st.sampled_from(sorted(GPUS))
precisions = st.sampled_from(["bf16", "fp16", "fp8", "int8", "int4_awq"])
placements = st.sampled_from(
    [
        {},
        {"gpus": [[1]]},
        {"gpus": [[0], [1]]},
        {"tensor_parallel": 2},
        {"tensor_parallel": 2, "gpus": [[2, 1]]},
        {"pipeline_parallel": 2},
        {"tensor_parallel": 2, "pipeline_parallel": 2},
        {"gpus": [[0], [0]]},
    ]
)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    def engine(checkpoints: list[Path]) -> dict[str, Any]:
        length = draw(st.integers(64, 20_000))
        block = draw(st.sampled_from([16, 32, 64]))
        return {
            "checkpoint": draw(st.sampled_from(checkpoints)),
            "precision": draw(precisions),
            "max_batch_size": draw(st.integers(1, 2048)),
            "max_num_tokens": draw(st.integers(16, 32_768)),
            "max_seq_len": length,
            "kv_cache": {
                "tokens": length + block,
                "block_size": block,
                "reuse": draw(st.booleans()),
            },
            "tensorrt": draw(placements),
        }

    first = engine([ONE_B, EIGHT_B]) | {"in_flight_requests": draw(st.integers(1, 2048))}
    second = engine([PRM, ONE_B]) | {"in_flight_tokens": 65_536}
    return deployment(draw(gpus), first, second)


@given(deployments())
@settings(deadline=None, max_examples=200)
def test_any_plan_fits_or_is_truly_too_small(wanted: Deployment) -> None:
    assert wanted.tensorrt
    gpu = GPUS[wanted.tensorrt.gpu]
    for spec in wanted.engines().values():
        assume(contract.precision_problem(wanted.tensorrt.gpu, spec.precision) is None)
    if max(least(wanted).values()) > int((1 - SAFETY) * gpu.memory):
        with pytest.raises(ConfigError, match=r"do not fit GPU|left for KV caches on GPU"):
            plan_memory(wanted)
        return
    plan = plan_memory(wanted)
    for place in plan.gpus:
        assert place.fixed + sum(place.kv.values()) + place.free == gpu.memory
        assert place.free >= SAFETY * gpu.memory
    pools = {role: engine.tokens for role, engine in plan.engines.items()}
    for role, engine in plan.engines.items():
        assert engine.tokens % engine.spec.kv_cache.block_size == 0
        assert engine.tokens >= engine.spec.max_seq_len
        assert engine.full_sequences >= 1
        # nothing is left that one more block could use, unless no beam could fill it
        more = pools | {role: engine.tokens + engine.spec.kv_cache.block_size}
        if engine.tokens < 2 * plan.beams / len(engine.spec.placement.replicas) * (
            engine.spec.max_seq_len
        ):
            assert plan.excess(more)
    assert plan.excess(pools) == {}
    assert plan.least_fraction <= 0.95
    assert math.isfinite(plan.searched.seconds)


def least(wanted: Deployment) -> dict[int, int]:
    """Bytes on each GPU with the smallest pools."""
    used: dict[int, int] = {}
    for spec in wanted.engines().values():
        ranks = ranks_of(shape_of(spec.checkpoint), spec)
        block = spec.kv_cache.block_size
        tokens = -(-spec.max_seq_len // block) * block
        for devices in spec.placement.replicas:
            for rank, device in zip(ranks, devices, strict=True):
                share = rank.fixed + tokens * rank.kv_bytes_per_token
                used[device] = used.get(device, 0) + share
    return used


def side(shape: ModelConfig, **fields: Any) -> Side:
    spec = generator()
    return Side(
        **(
            {
                "roofline": roofline(shape, spec, GPUS["h100"]),
                "beams": 256,
                "block": 32,
                "reuse": True,
                "shared": 150,
                "own": 300,
                "new": 1,
                "decoded": 60,
                "max_batch_size": 256,
                "max_num_tokens": 4096,
                "minimum": 2048,
                "useful": 10**9 // 32 * 32,
            }
            | fields
        )
    )


@given(
    tokens=st.integers(0, 10**6), shared=st.integers(0, 400), block=st.sampled_from([16, 32, 64])
)
@settings(deadline=None)
def test_a_pool_holds_what_it_was_sized_for(tokens: int, shared: int, block: int) -> None:
    some = side(shape_of(ONE_B), shared=shared, block=block)
    held = some.holds(tokens)
    assert (some.pool(held) if held else 0) <= tokens < some.pool(held + 1)


@given(
    capacity=st.integers(8, 80),
    more=st.integers(0, 40),
    beams=st.integers(1, 1024),
    reuse=st.booleans(),
)
@settings(deadline=None)
def test_more_memory_never_costs_more(capacity: int, more: int, beams: int, reuse: bool) -> None:
    sides = (
        side(shape_of(ONE_B), beams=beams),
        side(
            shape_of(PRM),
            beams=beams,
            reuse=reuse,
            new=65,
            decoded=0,
            max_batch_size=64,
            max_num_tokens=8192,
        ),
    )
    each = (32_768, 131_072)

    def used(pools: Pools) -> int:
        return pools.generator * each[0] + pools.verifier * each[1]

    small = search_split(sides, [Limit(capacity * GIB, each)])
    large = search_split(sides, [Limit((capacity + more) * GIB, each)])
    assert small is not None
    assert large is not None
    assert large.seconds <= small.seconds * (1 + 1e-9)
    assert used(small) <= capacity * GIB
    assert used(large) >= used(small) - 32 * sum(each)  # but for rounding to blocks


def test_nothing_is_found_where_nothing_fits() -> None:
    some = side(shape_of(ONE_B))
    limit = Limit(2048 * (32_768 + 131_072) - 1, (32_768, 131_072))
    assert search_split((some, some), [limit]) is None
    limit = Limit(limit.capacity + 1, limit.per_token)
    pools = search_split((some, some), [limit])
    assert pools is not None
    assert (pools.generator, pools.verifier) == (2048, 2048)
