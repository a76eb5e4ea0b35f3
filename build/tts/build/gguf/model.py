"""The model of a GGUF file in the words of transformers: its config.json, and its tensors by name.

Metadata that could change the computation and is not understood is refused by name, as is a tensor
that the model has no place for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD, expected_tensors, layer_prefix
from ..errors import CheckpointError
from ..model_config import ModelConfig, parse_model_config
from ..weights import Array
from .file import GgufFile, library
from .tokenizer import token_id

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",  # Mistral's as well
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_FIELDS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Fields of config.json, by the keys of the metadata behind the architecture's name."""
_WITHOUT_EFFECT = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned")
"""Said by the tensors or the architecture as well."""
_FACTORS = "rope_freqs.weight"
"""The divisor of each rotary frequency: how llama.cpp keeps Llama 3's scaling."""
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The same for every model of the Llama 3 family; only the factor differs."""
_OUTER = {"token_embd": EMBEDDING, "output_norm": FINAL_NORM, "output": LM_HEAD}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_VALUES = 1 << 22
"""Values of a tensor that are in memory together; bounds the temporaries."""


class GgufModel(NamedTuple):
    """A supported model, every tensor of which is in the file."""

    file: GgufFile
    fields: dict[str, Any]
    """What config.json says of it."""
    config: ModelConfig
    tensors: dict[str, str]
    """The file's names of the tensors, by those of transformers."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, by its name of transformers."""
        return self.file.tensors[self.tensors[name]].shape

    def values(self, name: str) -> Iterator[Array]:
        """The values of a tensor in fp32, some rows at a time; raises CheckpointError."""
        quants = library()
        there = self.tensors[name]
        kind = quants.GGMLQuantizationType(self.file.tensors[there].kind)
        data, order = self.file.rows(there), self._order(name)
        rows = max(1, _VALUES // self.shape(name)[-1])
        for start in range(0, len(data), rows):
            some = slice(start, start + rows)
            try:
                values = quants.dequantize(data[some if order is None else order[some]], kind)
            except NotImplementedError as error:
                raise CheckpointError(
                    f"{self.file.path}: tensor {there!r} is stored as {kind.name}, which `gguf` "
                    "cannot read.",
                    hint="Take the model in another quantisation, such as Q8_0 or Q4_K_M.",
                ) from error
            yield np.ascontiguousarray(values, np.float32)

    def _order(self, name: str) -> Array | None:
        """The file's rows in the order of transformers; None: they are.

        llama.cpp turns neighbouring pairs of a head's rows, transformers a row of its first half
        with one of its second; so those of Llama are stored in another order.
        """
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}
        count = heads.get(name.split(".")[-2])
        if self.config.architecture != "LlamaForCausalLM" or count is None:
            return None
        rows = np.arange(count * self.config.head_dim)
        if name.endswith(".bias"):  # one row of values: not stored by heads
            return None
        return rows.reshape(count, -1, 2).swapaxes(1, 2).reshape(-1)


def read_model(file: GgufFile) -> GgufModel:
    """The model of a file; raises CheckpointError naming what is not supported or missing."""
    parts = file.metadata.get("split.count", 0)
    if type(parts) is not int or parts > 1:
        file.refuse("split.count", "1 (put the parts together with llama-gguf-split --merge)")
    fields = _config(file)
    config = parse_model_config(file.path, fields)
    tensors = _names(file)
    _require_tensors(file, config, tensors)
    return GgufModel(file, fields, config, tensors)


def _config(file: GgufFile) -> dict[str, Any]:
    kind = file.text("general.architecture")
    if kind not in ARCHITECTURES:
        file.refuse("general.architecture", ", ".join(ARCHITECTURES))
    own = {
        key.removeprefix(f"{kind}."): value
        for key, value in file.metadata.items()
        if key.startswith(f"{kind}.")
    }
    fields = {name: own[key] for key, name in _FIELDS.items() if key in own}
    _refuse_others(file, kind, own)
    embedding = file.tensors.get("token_embd.weight")
    scaling = _scaling(file)
    return fields | {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "hidden_act": "silu",
        "vocab_size": embedding.shape[0] if embedding else None,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "use_sliding_window": False,
        "rope_scaling": scaling,
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": _ends(file),
    }


def _refuse_others(file: GgufFile, kind: str, own: dict[str, Any]) -> None:
    """Refuse metadata of the model that would make it another than its config.json says."""
    heads, width = own.get("attention.head_count"), own.get("embedding_length")
    size = own.get("attention.key_length")
    if size is None and type(heads) is int and type(width) is int and heads:
        size = width // heads
    without: dict[str, tuple[Any, ...]] = {
        "attention.value_length": (size,),
        "rope.dimension_count": (size,),
        "rope.scaling.type": ("none",),
        "rope.scaling.factor": (1.0,),
        "rope.scale_linear": (1.0,),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "attention.causal": (True,),
        "attention.sliding_window": (0, own.get("context_length")),
    }
    for key, value in own.items():
        if key in _FIELDS or key in _WITHOUT_EFFECT:
            continue
        if key not in without:
            file.refuse(f"{kind}.{key}", "none, as it is unknown here what it would change")
        if isinstance(value, np.ndarray) or value not in without[key]:
            file.refuse(f"{kind}.{key}", " or ".join(map(str, without[key])))


def _scaling(file: GgufFile) -> dict[str, Any] | None:
    """Llama 3's scaling of rotary frequencies, recovered from its effect on each."""
    if _FACTORS not in file.tensors:
        return None
    stored = file.tensors[_FACTORS]
    theta = file.metadata.get("llama.rope.freq_base", 10_000.0)
    if stored.kind == 0 and len(stored.shape) == 1 and isinstance(theta, float) and theta > 1:
        factors = file.rows(_FACTORS).view("<f4")[0]
        scaling = {"rope_type": "llama3", "factor": round(float(factors.max()), 3), **_LLAMA3}
        if np.allclose(factors, _llama3_factors(scaling, theta, len(factors)), rtol=1e-3):
            return scaling
    raise CheckpointError(
        f"{file.path}: {_FACTORS} scales rotary frequencies otherwise than Llama 3 does.",
        hint="Take the model as published by its makers, in safetensors.",
    )


def _llama3_factors(scaling: dict[str, Any], theta: float, count: int) -> Array:
    lengths = 2 * math.pi * theta ** (np.arange(count) / count)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] / lengths
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    factors: Array = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    return factors


def _ends(file: GgufFile) -> list[int] | None:
    """The ids that end a sequence: of a text and of a turn."""
    ids = [token_id(file, name) for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(each for each in ids if each is not None)) or None


def _names(file: GgufFile) -> dict[str, str]:
    """The file's names of all tensors but the rotary factors, by those of transformers."""
    return {_name(file, name): name for name in file.tensors if name != _FACTORS}


def _name(file: GgufFile, name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if f"{stem}.weight" == name and stem in _OUTER:
        return _OUTER[stem]
    match stem.split("."):
        case ["blk", layer, part] if (
            layer.isdecimal() and part in _IN_LAYER and str(int(layer)) == layer
        ):
            return f"{layer_prefix(int(layer))}{_IN_LAYER[part]}.{suffix}"
    _refuse_tensor(file, f"has the tensor {name!r:.100}, for which the model has no place")


def _require_tensors(file: GgufFile, config: ModelConfig, tensors: dict[str, str]) -> None:
    wanted = expected_tensors(config)
    for name in tensors.keys() - wanted.keys():
        _refuse_tensor(file, f"has the tensor {tensors[name]!r:.100}, for which it has no place")
    for name, shape in wanted.items():
        if name not in tensors:
            _refuse_tensor(file, f"has no tensor for {name}")
        if (found := file.tensors[tensors[name]].shape) != shape:
            said = f"has {tensors[name]} in the shape {list(found)}, and its metadata ask for"
            _refuse_tensor(file, f"{said} {list(shape)}")


def _refuse_tensor(file: GgufFile, what: str) -> NoReturn:
    raise CheckpointError(
        f"{file.path} {what}.",
        hint="The file is damaged, or of an architecture that differs from what it names.",
    )
