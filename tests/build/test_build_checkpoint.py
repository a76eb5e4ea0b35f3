"""Reading checkpoints: what is accepted, what is refused by name, what is damaged."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.build.conftest import LLAMA3

from tts.base.errors import CheckpointError
from tts.build.checkpoint import open_checkpoint
from tts.build.model_config import Llama3Scaling, read_model_config
from tts.build.weights import Weights, holds_no_number


def test_config_of_transformers_5(llama, edit_config):
    config = read_model_config(llama)
    assert config.architecture == "LlamaForCausalLM"
    assert (config.hidden_size, config.num_layers, config.num_kv_heads) == (64, 2, 2)
    assert config.rope_theta == 10_000.0
    assert config.rope_scaling is None
    assert config.dtype == "float32"
    config = read_model_config(edit_config(head_dim=..., rms_norm_eps=..., attention_bias=...))
    assert (config.head_dim, config.rms_norm_eps, config.qkv_bias) == (16, 1e-6, False)


def test_config_of_older_transformers(edit_config):
    scaling = {"type": "llama3"} | {k: v for k, v in LLAMA3.items() if k != "rope_type"}
    folder = edit_config(
        rope_parameters=..., rope_theta=5e5, rope_scaling=scaling, dtype=..., torch_dtype="bfloat16"
    )
    config = read_model_config(folder)
    assert config.rope_theta == 5e5
    assert config.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)
    assert config.dtype == "bfloat16"


def test_remote_code_of_a_supported_architecture_is_ignored(edit_config):
    assert read_model_config(edit_config(auto_map={"AutoModel": "evil.Model"}))


REFUSED = [
    ({"architectures": ["GPT2LMHeadModel"]}, ["architectures", "GPT2", "Qwen3ForCausalLM"]),
    ({"architectures": ["Qwen2MoeForCausalLM"]}, ["Qwen2MoeForCausalLM", "LlamaForCausalLM"]),
    ({"architectures": ...}, ["architectures", "LlamaForCausalLM"]),
    ({"architectures": [["LlamaForCausalLM"]]}, ["architectures"]),
    ({"rope_parameters": {"rope_type": "yarn"}}, ["rope_parameters.rope_type", "yarn", "llama3"]),
    ({"rope_parameters": ..., "rope_scaling": {"type": "linear"}}, ["rope_scaling", "linear"]),
    ({"rope_parameters": {"full_attention": {}}}, ["rope_parameters", "one set"]),
    ({"rope_parameters": LLAMA3 | {"factor": None}}, ["rope_parameters.factor", "positive"]),
    ({"rope_parameters": LLAMA3 | {"high_freq_factor": 1.0}}, ["high_freq_factor", "above"]),
    ({"rope_parameters": "linear"}, ["rope_parameters", "linear"]),
    ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
    ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, ["sliding_window", "4096"]),
    ({"architectures": ["MistralForCausalLM"]}, ["sliding_window", "absent"]),
    ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}, ["use_sliding_window"]),
    ({"layer_types": ["full_attention", "sliding_attention"]}, ["layer_types", "sliding"]),
    ({"num_experts": 8}, ["num_experts", "8", "mixture"]),
    ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config", "gptq"]),
    ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
    ({"num_attention_heads": "four"}, ["num_attention_heads", "four", "positive integer"]),
    ({"num_key_value_heads": 3}, ["num_key_value_heads", "3", "divisor"]),
    ({"head_dim": 15}, ["head_dim", "15", "even"]),
    ({"hidden_size": ...}, ["no field hidden_size"]),
    ({"rms_norm_eps": -1}, ["rms_norm_eps", "-1"]),
    ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings", "yes"]),
    ({"num_hidden_layers": 10**9}, ["num_hidden_layers", "1000000000", "at most 10,000"]),
    ({"vocab_size": 10**12}, ["vocab_size", "at most 2,147,483,647"]),
    ({"rms_norm_eps": float("inf")}, ["rms_norm_eps", "inf", "positive number"]),
    ({"rms_norm_eps": 10**400}, ["rms_norm_eps", "positive number"]),
    ({"layer_types": 7}, ["layer_types", "7", "full_attention"]),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: str(value)[:50])
def test_refused_by_name(edit_config, fields, words):
    folder = edit_config(**fields)
    with pytest.raises(CheckpointError) as caught:
        read_model_config(folder)
    for word in [str(folder / "config.json"), *words]:
        assert word in caught.value.message


def test_missing_folder(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint folder .*nowhere"):
        open_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["{", "[]", "\udcff", "[" * 100_000, None], ids=range(5))
def test_damaged_config(llama, text):
    file = llama / "config.json"
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(llama)


def header(text):
    return len(text).to_bytes(8, "little") + text.encode()


def tensor(dtype, shape, end):
    item = f'{{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [0, {end}]}}'
    return header(f'{{"x": {item}}}')


DAMAGED = {
    "cut": lambda data: data[:-100],
    "zeros": bytes(64),
    "a pointer of git-lfs": b"version https://git-lfs.github.com/spec/v1",
    "empty": b"",
    "a list": header("[]"),
    "deep": header("[" * 100_000),
    "a number": header('{"x": 1}'),
    "no fields": header('{"x": {}}'),
    "huge": tensor("F32", "[99999999999999999999]", 4),
    "negative": tensor("F32", "[-1, -1]", 4),
    "infinite": tensor("F32", "[1e999]", 4),
    "a fraction": tensor("F16", "[1.5]", 2),
    "beyond the end": tensor("F16", "[4]", 8),
    "twice": header(
        '{"x": {"dtype": "F16", "dtype": "F16", "shape": [0], "data_offsets": [0, 0]}}'
    ),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_weights(llama, damage):
    file = llama / "model.safetensors"
    file.write_bytes(damage if isinstance(damage, bytes) else damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a readable") as caught:
        open_checkpoint(llama)
    assert "download" in str(caught.value.hint)


def change_weights(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "no tensor 'model.layers.1.mlp.up_proj"),
        ("lm_head.weight", None, "no tensor 'lm_head.weight'"),
        (
            "model.norm.weight",
            np.ones(64, np.int8),
            "model.norm.weight' is I8; supported: F32, F16",
        ),
        (
            "model.layers.0.mlp.gate_proj.weight",
            np.ones((96, 63), np.float32),
            "has shape [96, 63], but config.json asks for [96, 64]",
        ),
    ],
)
def test_weights_that_are_not_the_models(llama, edit_config, name, changed, message):
    change_weights(
        llama, lambda all_: all_.pop(name) if changed is None else all_.update({name: changed})
    )
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(llama)
    assert message in caught.value.message
    if name == "lm_head.weight":
        assert open_checkpoint(edit_config(tie_word_embeddings=True))


def test_no_weights(llama):
    (llama / "model.safetensors").rename(llama / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pickle only \(pytorch_model\.bin\)"):
        open_checkpoint(llama)
    (llama / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match="neither"):
        open_checkpoint(llama)


def shards(checkpoint):
    return sorted(checkpoint.glob("model-*.safetensors"))


def test_sharded_reads_as_the_whole(make_checkpoint, llama):
    sharded = make_checkpoint(shard="100KB", name="sharded")
    assert len(shards(sharded)) > 1
    whole = load_file(llama / "model.safetensors")
    weights = open_checkpoint(sharded).weights
    for name, tensor in whole.items():
        assert np.array_equal(weights.tensor(name), tensor)


@pytest.mark.parametrize("change", ["absent", "outside", "no map"])
def test_damaged_index(make_checkpoint, change):
    folder = make_checkpoint(shard="100KB")
    index = folder / "model.safetensors.index.json"
    if change == "absent":
        shards(folder)[-1].unlink()
        expected = f"names the shard {shards(folder)[-1].name[:6]}.*not in the folder"
    elif change == "outside":
        index.write_text(json.dumps({"weight_map": {"x": "../x.safetensors"}}))
        expected = "outside its own folder"
    else:
        index.write_text("{}")
        expected = "no weight_map"
    with pytest.raises(CheckpointError, match=expected):
        open_checkpoint(folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_types_widen_exactly(torch, make_checkpoint, make_model, dtype):
    weights = open_checkpoint(make_checkpoint(dtype=dtype)).weights
    expected = make_model().to(getattr(torch, dtype)).float().state_dict()
    for name, tensor in expected.items():
        assert np.array_equal(weights.tensor(name).astype(np.float32), tensor.numpy())


def test_a_tensor_of_two_shards(make_checkpoint):
    folder = make_checkpoint(shard="100KB")
    first, second, *_ = shards(folder)
    save_file(load_file(first) | load_file(second), second)
    with pytest.raises(CheckpointError, match=rf"is in {first.name} and in {second.name}"):
        open_checkpoint(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers(make_checkpoint, dtype, value):
    folder = make_checkpoint(dtype=dtype)
    name = "model.layers.1.mlp.up_proj.weight"
    change_weights(folder, lambda tensors: tensors[name].fill(value))
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: tensor '{name}' holds values"):
        open_checkpoint(folder)


def test_a_value_that_is_no_number_amid_a_tensor(llama):
    name = "model.embed_tokens.weight"

    def damage(tensors):
        tensors[name] = np.tile(tensors[name], (40, 1))
        tensors[name][len(tensors[name]) // 2, 0] = np.nan

    change_weights(llama, damage)
    weights = Weights(llama)
    weights.require_ends()
    with pytest.raises(CheckpointError, match=rf"tensor '{name}' holds values that are no numbers"):
        weights.numbers(name)
    assert weights.numbers(name, [0, 1]).shape[0] == 2
    with pytest.raises(CheckpointError, match="no numbers"):
        weights.numbers(name, [0, weights.tensor(name).shape[0] // 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_number_is_one(dtype):
    limits = ml_dtypes.finfo(dtype)
    values = [0, -0.0, limits.tiny, limits.smallest_subnormal, limits.max, limits.min]
    assert not holds_no_number(np.array(values, dtype))
    for value in (np.nan, np.inf, -np.inf):
        assert holds_no_number(np.array([*values, value], dtype))
