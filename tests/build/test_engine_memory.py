"""Bytes of an engine, rank by rank: against hand-worked numbers and public logs."""

import dataclasses
import json
from pathlib import Path

import pytest
from tests.build.planned_pair import EIGHT_B, ONE_B, PRM, generator, near, verifier

from tts.base.errors import CheckpointError
from tts.build.model_config import read_model_config, shape_of
from tts.build.tensorrt.engine_memory import CONTEXT, WORKSPACE, parameters, ranks_of
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.step_time import ModelShape

# Worked by hand from the published shapes: billions of parameters, of layers, of the head,
# GB of bf16 weights, KV bytes per token, GFLOPs per token of layers and with the head,
# FLOPs of attention per token and token of context.
HAND_WORKED = {
    ONE_B: (1.236, 0.973, 0.263, 2.47, 32_768, 1.95, 2.47, 131_072),
    PRM: (8.030, 6.979, 0.525, 16.06, 131_072, 13.96, 15.01, 524_288),
}


@pytest.mark.parametrize("checkpoint", HAND_WORKED, ids=lambda path: path.name)
def test_hand_worked_numbers(checkpoint):
    total, body, head, weights, kv, flops, flops_with_head, attention = HAND_WORKED[checkpoint]
    shape = shape_of(checkpoint)
    counted = parameters(shape)
    spec = generator(checkpoint=checkpoint)
    (rank,) = ranks_of(shape, spec)
    step = ModelShape.of(shape)
    assert counted.total == near(total * 1e9)
    assert counted.body == near(body * 1e9)
    assert counted.head == near(head * 1e9)
    assert 2 * counted.total == near(weights * 1e9)
    copied_head = 2 * counted.head if counted.tied else 0
    assert rank.weights - copied_head == near(weights * 1e9)
    assert rank.kv_bytes_per_token == kv
    assert 2 * step.body == near(flops * 1e9)
    assert 2 * (step.body + step.head) == near(flops_with_head * 1e9)
    assert step.attention_flops == attention


@pytest.mark.parametrize(
    ("checkpoint", "published"),
    [
        (ONE_B, 1_235_814_400),
        (EIGHT_B, 8_030_261_248),
        (Path("/nowhere/Llama-3.3-70B-Instruct"), 70_553_706_496),
        (Path("/nowhere/Mixtral-8x7B-Instruct-v0.1"), 46_702_792_704),
    ],
)
def test_parameters_are_counted_exactly(checkpoint, published):
    assert parameters(shape_of(checkpoint)).total == published


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(
    ("has", "values"),
    [
        ("qk_norm", 2 * 64),
        ("qkv_bias", (32 + 2 * 8) * 64),
        ("output_bias", 2048),
        ("mlp_bias", 2 * 8192 + 2048),
    ],
)
def test_norms_and_biases_are_kept_in_16_bits(has, values, precision):
    """In each of the 16 layers of Llama-3.2-1B, if it had them."""
    plain = dataclasses.replace(shape_of(ONE_B), **{has: False})
    shaped = dataclasses.replace(plain, **{has: True})
    spec = generator(precision=precision)
    (without,), (with_them,) = ranks_of(plain, spec), ranks_of(shaped, spec)
    assert with_them.weights - without.weights == 16 * 2 * values


def test_estimates_bound_what_public_logs_show():
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


def test_the_verifier_keeps_generation_logits():
    shape = shape_of(PRM)
    (plain,) = ranks_of(shape, generator(checkpoint=PRM, max_batch_size=64))
    (scoring,) = ranks_of(shape, verifier())
    assert scoring.logits - plain.logits == 8 * 64 * 128_256 * 4


def test_precisions_by_size():
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


@pytest.mark.parametrize(
    ("precision", "layer"),
    [
        # 1000 inputs are padded to 1024 and 2000 to 2048 in both: q, k, v 1024 outputs, o, up and
        # gate, down. int8 has two bytes per output beside, int4_awq two per input and group of 128
        ("int8", 2 * 1024 * 1024 + 3 * 1024 * 2048 + 2 * (1024 + 1024 + 2 * 2048 + 1024)),
        (
            "int4_awq",
            (2 * 1024 * 1024 + 3 * 1024 * 2048) // 2
            + 2 * (8 * 1024 + 8 * 1024 + 2 * 8 * 2048 + 16 * 1024)
            + 2 * (1024 + 1024 + 2 * 1024 + 2048),
        ),
    ],
)
def test_matrices_are_padded(precision, layer):
    shape = dataclasses.replace(
        shape_of(ONE_B),
        vocab_size=100,
        hidden_size=1000,
        num_layers=1,
        num_heads=8,
        num_kv_heads=4,
        head_dim=64,
        intermediate_size=2000,
    )
    # queries are 512 wide, keys and values 256 each: the output matrix has 512 inputs
    output = {"int8": 512 * 1024, "int4_awq": 512 * 1024 // 2 + 2 * (4 * 1024 + 512)}
    square = {"int8": 1024 * 1024, "int4_awq": 1024 * 1024 // 2 + 2 * (8 * 1024 + 1024)}
    norms, head = 2 * 2 * 1000, 2 * 100 * 1000 + 2 * 1000
    (rank,) = ranks_of(shape, generator(precision=precision))
    assert rank.streamed == layer - square[precision] + output[precision] + norms + head


def test_only_engines_of_several_ranks_communicate():
    shape = shape_of(PRM)
    for ranks, workspaces in ((1, CONTEXT + WORKSPACE), (2, CONTEXT + WORKSPACE + GIB // 2)):
        spec = generator(checkpoint=PRM, tensorrt={"tensor_parallel": ranks})
        assert ranks_of(shape, spec)[0].workspaces == workspaces


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_tensor_parallel_split(tp):
    shape = shape_of(PRM)
    (whole,) = ranks_of(shape, generator(checkpoint=PRM))
    ranks = ranks_of(shape, generator(checkpoint=PRM, tensorrt={"tensor_parallel": tp}))
    assert len(ranks) == tp
    assert len(set(ranks)) == 1
    assert ranks[0].kv_bytes_per_token == 131_072 // min(tp, 8)  # 8 KV heads, then copies
    if tp <= 8:
        # norms are whole on every rank
        split = whole.streamed / tp
        assert split <= ranks[0].streamed < 1.001 * split
    embedding = whole.weights - whole.streamed
    assert ranks[0].weights - ranks[0].streamed == near(embedding / tp, 0.001)
    assert ranks[0].activations <= whole.activations


def test_pipeline_split():
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


def mixture(folder, name, **fields):
    (folder / "config.json").write_text(json.dumps(MIXTURES[name][2] | fields))
    return folder


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_experts(tmp_path, name):
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


# Values per token of one layer by hand, for one rank and for a quarter of the tensors: residual 4 x
# hidden, queries, keys and values 2 x heads x head_dim, each of the token's experts 3 x inner + 2 x
# hidden, the shared expert 3 x inner. Of Mixtral on one rank, and with logits: 1,039 MiB.
WIDTHS = {
    "mixtral-8x7b": (
        4 * 4096 + 2 * (32 + 2 * 8) * 128 + 2 * (3 * 14336 + 2 * 4096),
        4 * 4096 + 2 * (8 + 2 * 2) * 128 + 2 * (3 * 3584 + 2 * 4096),
    ),
    "qwen1.5-moe-a2.7b": (
        4 * 2048 + 2 * (16 + 2 * 16) * 128 + 4 * (3 * 1408 + 2 * 2048) + 3 * 5632,
        4 * 2048 + 2 * (4 + 2 * 4) * 128 + 4 * (3 * 352 + 2 * 2048) + 3 * 1408,
    ),
}


def test_fp8_keeps_two_float32_scales_per_matrix():
    shape = shape_of(PRM)
    (rank,) = ranks_of(shape, generator(checkpoint=PRM, precision="fp8"))
    norms = (2 * 32 + 1) * 4096
    matrices = parameters(shape).body - norms
    assert rank.streamed == matrices + 32 * 5 * 2 * 4 + 2 * norms + 2 * parameters(shape).head


@pytest.mark.parametrize("name", WIDTHS)
def test_activations_of_mixtures(tmp_path, name):
    shape = shape_of(mixture(tmp_path, name))
    for parts, width in zip((1, 4), WIDTHS[name], strict=True):
        spec = generator(checkpoint=tmp_path, tensorrt={"tensor_parallel": parts})
        logits = 256 * shape.vocab_size
        assert ranks_of(shape, spec)[0].activations == 2 * (4096 * width + logits)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers"),
        ({"num_experts_per_tok": 200}, "num_experts_per_tok is 200"),
        ({"num_experts": None}, "no field num_experts"),
    ],
)
def test_refused_mixtures(tmp_path, fields, words):
    with pytest.raises(CheckpointError, match=words):
        shape_of(mixture(tmp_path, "qwen3-30b-a3b", **fields))
