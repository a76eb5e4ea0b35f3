"""GGUF files as llama.cpp's converter writes them, of tiny checkpoints."""

import json

import numpy as np
from safetensors.numpy import load_file
from tokenizers.pre_tokenizers import ByteLevel

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
WORDS = ["he", "ll", "hell", "hello"]
BYTES = sorted(ByteLevel.alphabet())
TOKENS = [*SPECIAL, *BYTES, *WORDS]
MERGES = ["h e", "l l", "he ll", "hell o"]


def gguf_of(checkpoint, file, kind="F32", tensors=None, **changed):
    """The GGUF file of a checkpoint saved by transformers, its matrices quantised as `kind`.

    `changed` is metadata in place of the converter's, with `__` for a dot; `tensors` more tensors.
    """
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    arch = ARCHITECTURES[config["architectures"][0]]
    fields = _model(arch, config) | _tokenizer()
    fields |= {key.replace("__", "."): value for key, value in changed.items()}
    writer = gguf.GGUFWriter(file, arch)
    for key, value in fields.items():
        if key == "general.architecture" or value is None:
            continue
        _add(writer, key, value)
    if changed.get("general__architecture"):
        writer.arch = changed["general__architecture"]
        writer.kv_data[0]["general.architecture"].value = writer.arch
    for name, values in (load_file(checkpoint / "model.safetensors") | (tensors or {})).items():
        stored = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        ordered = permuted(values, name, config) if arch == "llama" else values
        data = gguf.quantize(np.ascontiguousarray(ordered, np.float32), stored)
        writer.add_tensor(gguf_name(name), data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def gguf_name(name):
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{NAMES[part]}.{suffix}"
    return f"{NAMES[stem]}.{suffix}" if stem in NAMES else name


def permuted(values, name, config):
    """Rows of Llama's queries and keys as llama.cpp's converter orders them."""
    part = name.split(".")[-2]
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(part)
    if heads is None:
        return values
    apart = values.reshape(config[heads], 2, -1, *values.shape[1:])
    return apart.swapaxes(1, 2).reshape(values.shape)


def _model(arch, config):
    rope = config.get("rope_parameters") or {}
    return {
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.rope.freq_base": rope.get("rope_theta", 10_000.0),
        f"{arch}.vocab_size": config["vocab_size"],
        f"{arch}.attention.key_length": config["head_dim"],
        f"{arch}.rope.dimension_count": config["head_dim"],
    }


def _tokenizer():
    unused = [f"[PAD{index}]" for index in range(2)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*TOKENS, *unused],
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - 3) + [5, 5],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def _add(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
