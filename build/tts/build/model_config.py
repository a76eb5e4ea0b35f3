"""The shape of a model: as config.json describes it, or as published under its checkpoint's name.

Everything that would change the computation and is not implemented is refused by name: a model that
passes is computed exactly as transformers computes it. Published models are known by name, so that
deployments can be planned before the download.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict

from tts.base.choices import STARTED, Target
from tts.base.errors import CheckpointError

from .checkpoint_files import read_json_object, require_checkpoint_folder
from .verifier_heads import HEADED, Head, head_of, label_count


class _Family(NamedTuple):
    """Properties of an architecture that its config.json does not state."""

    qkv_bias: bool | None  # None: config.json's attention_bias decides
    output_bias: bool | None
    qk_norm: bool = False
    mlp_bias: bool | None = False
    head_dim: int | None = None  # when config.json names none; None: hidden / heads


ARCHITECTURES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(qkv_bias=None, output_bias=None, mlp_bias=None),
    "Qwen2ForCausalLM": _Family(qkv_bias=True, output_bias=False),
    "Qwen3ForCausalLM": _Family(qkv_bias=None, output_bias=None, qk_norm=True, head_dim=128),
    "MistralForCausalLM": _Family(qkv_bias=False, output_bias=False),
}
MIXTURES: Mapping[str, _Family] = {
    "MixtralForCausalLM": _Family(qkv_bias=False, output_bias=False),
    "Qwen2MoeForCausalLM": _Family(qkv_bias=True, output_bias=False),
    "Qwen3MoeForCausalLM": _Family(qkv_bias=None, output_bias=None, qk_norm=True),
}
"""Mixtures of experts, supported by target tensorrt only."""
MAX_LAYERS = 10_000
"""Far above any model: every layer's tensors are looked up one by one."""
_EXPERT_FIELDS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
_LLAMA3_FIELDS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


@dataclass(frozen=True)
class Llama3Scaling:
    """The constants of rope type "llama3"."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: float


@dataclass(frozen=True)
class Experts:
    """The mixture of experts that replaces the MLP in every layer."""

    count: int
    per_token: int
    """Experts that one token passes through."""
    intermediate_size: int
    """Inner size of one expert."""
    shared_intermediate_size: int
    """Inner size of the expert that every token passes through; 0: there is none."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer of one of the supported architectures."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tie_word_embeddings: bool
    qk_norm: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    max_position_embeddings: int
    dtype: str
    """The type of the stored weights as config.json names it; empty if it does not."""
    experts: Experts | None = None
    """None: a dense model."""
    head: Head | None = None
    """A verifier's own head instead of the language head; None: it has none."""

    @property
    def attention_flops(self) -> int:
        """FLOPs of attention for one token and one token of its context, over all layers.

        A multiplication and an addition each per head dimension, once for query times key and once
        for the weighted sum of values.
        """
        return 4 * self.num_layers * self.num_heads * self.head_dim


def read_model_config(checkpoint: Path) -> ModelConfig:
    """Read config.json of a Hugging Face checkpoint folder.

    Raises CheckpointError naming the file, the field, its value and what is supported.
    """
    require_checkpoint_folder(checkpoint)
    file = checkpoint / "config.json"
    return parse_model_config(file, read_json_object(file))


def parse_model_config(
    file: Path, data: Mapping[str, Any], architectures: Mapping[str, _Family] = ARCHITECTURES
) -> ModelConfig:
    """The shape that the fields of a config.json describe; `file` is named in errors."""
    fields = _Fields(file, data)
    architecture, head = _architecture(fields, architectures)
    if head and head.kind == "classification" and (count := label_count(data)) != 2:
        one = ", or 1 value" if head.scores == "answers" else ""
        fields.refuse("num_labels", count, f"2 classes, wrong and right{one}")
    _refuse_unsupported(fields, architecture)
    family = architectures[architecture]
    attention_bias = fields.flag("attention_bias", False)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", heads)
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    head_dim = fields.count("head_dim", family.head_dim or hidden // heads)
    if head_dim % 2:
        fields.refuse("head_dim", head_dim, "an even number (rotary embeddings turn pairs)")
    theta, scaling = _rope(fields)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        num_layers=fields.count("num_hidden_layers", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.count("intermediate_size"),
        rms_norm_eps=fields.positive("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        qk_norm=family.qk_norm,
        qkv_bias=attention_bias if family.qkv_bias is None else family.qkv_bias,
        output_bias=attention_bias if family.output_bias is None else family.output_bias,
        mlp_bias=fields.flag("mlp_bias", False) if family.mlp_bias is None else family.mlp_bias,
        max_position_embeddings=fields.count("max_position_embeddings"),
        dtype=str(fields.get("dtype") or fields.get("torch_dtype") or ""),
        experts=_experts(fields) if architecture in MIXTURES else None,
        head=head,
    )


class _Fields:
    """config.json with checked access; every error names the file, the field and its value."""

    def __init__(self, file: Path, data: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self.data = data
        self.prefix = prefix

    def refuse(self, field: str, value: object, supported: str) -> NoReturn:
        raise CheckpointError(
            f"{self.file}: {self.prefix}{field} is {value!r:.200}; supported: {supported}."
        )

    def require_unset(self, field: str, supported: str) -> None:
        if value := self.get(field):
            self.refuse(field, value, supported)

    def get(self, field: str, default: Any = None) -> Any:
        value = self.data.get(field)
        return default if value is None else value

    def count(self, field: str, default: int | None = None, *, most: int = 2**31 - 1) -> int:
        value = self.get(field, default)
        if value is None:
            raise CheckpointError(
                f"{self.file} has no field {self.prefix}{field}.",
                hint="The checkpoint is incomplete: save it again with transformers.",
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(field, value, "a positive integer")
        if value > most:
            self.refuse(field, value, f"at most {most:,}")
        return value

    def positive(self, field: str, default: float | None = None) -> float:
        value = self.get(field, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 < value <= sys.float_info.max
        ):
            self.refuse(field, value, "a positive number")
        return float(value)

    def flag(self, field: str, default: bool) -> bool:
        value = self.get(field, default)
        if not isinstance(value, bool):
            self.refuse(field, value, "true or false")
        return value


def _architecture(fields: _Fields, architectures: Mapping[str, _Family]) -> tuple[str, Head | None]:
    """The causal model whose layers it has, and the head that takes its language head's place."""
    names = fields.get("architectures", [])
    for architecture in architectures:
        if names == [architecture]:
            return architecture, None
    headed = head_of(fields.data)
    if headed and headed[0] in architectures:
        return headed
    fields.refuse("architectures", names, ", ".join((*architectures, *HEADED)))


def _experts(fields: _Fields) -> Experts:
    every_layer = "an expert mixture in every layer"
    if fields.get("decoder_sparse_step", 1) != 1:
        fields.refuse(
            "decoder_sparse_step", fields.get("decoder_sparse_step"), f"1 ({every_layer})"
        )
    fields.require_unset("mlp_only_layers", f"[] ({every_layer})")
    # transformers 5 saves Qwen3's num_experts as num_local_experts, as Mixtral always had it
    field = "num_local_experts" if fields.get("num_local_experts") else "num_experts"
    count, per_token = fields.count(field), fields.count("num_experts_per_tok")
    if per_token > count:
        fields.refuse("num_experts_per_tok", per_token, f"at most {field} ({count})")
    sized = "moe_intermediate_size"
    shared = "shared_expert_intermediate_size"
    return Experts(
        count=count,
        per_token=per_token,
        intermediate_size=fields.count(sized if fields.get(sized) else "intermediate_size"),
        shared_intermediate_size=fields.count(shared) if fields.get(shared) else 0,
    )


def _refuse_unsupported(fields: _Fields, architecture: str) -> None:
    for field in _EXPERT_FIELDS if architecture not in MIXTURES else ():
        fields.require_unset(field, "dense models only, no mixture of experts")
    supported = "unquantised checkpoints; `precision` in the deployment file quantises the engine"
    fields.require_unset("quantization_config", supported)
    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        fields.refuse("hidden_act", activation, "silu")
    window = "no sliding window, full attention in every layer"
    if architecture == "MistralForCausalLM":
        # transformers takes 4096 when the field is absent, so absent is not null
        value = fields.data.get("sliding_window", "absent (that is, 4096)")
        if value is not None:
            fields.refuse("sliding_window", value, f"null ({window})")
    fields.require_unset("use_sliding_window", f"false ({window})")
    kinds = fields.get("layer_types", [])
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        fields.refuse("layer_types", kinds, f"full_attention ({window})")


def _rope(fields: _Fields) -> tuple[float, Llama3Scaling | None]:
    """Theta and scaling, from transformers 5's rope_parameters or the older pair of fields."""
    name = "rope_parameters" if fields.get("rope_parameters") else "rope_scaling"
    data = fields.get(name, {})
    if not isinstance(data, dict):
        fields.refuse(name, data, "an object or null")
    rope = _Fields(fields.file, data, prefix=f"{name}.")
    theta = rope if rope.get("rope_theta") is not None else fields
    rotary = rope if rope.get("partial_rotary_factor") is not None else fields
    if rotary.get("partial_rotary_factor", 1.0) != 1.0:
        value = rotary.get("partial_rotary_factor")
        rotary.refuse("partial_rotary_factor", value, "1.0 (the whole head is rotated)")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        if any(isinstance(value, dict) for value in data.values()):
            fields.refuse(name, data, "one set of rotary parameters for all layers")
        return theta.positive("rope_theta", 10_000.0), None
    if kind != "llama3":
        rope.refuse("rope_type", kind, "default, llama3")
    scaling = Llama3Scaling(*(rope.positive(field) for field in _LLAMA3_FIELDS))
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        rope.refuse(
            "high_freq_factor",
            scaling.high_freq_factor,
            f"a number above low_freq_factor {scaling.low_freq_factor}",
        )
    return theta.positive("rope_theta", 10_000.0), scaling


class KnownModel(BaseModel):
    """The published facts about one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Where its files are."""
    config: dict[str, Any]
    """The fields of its config.json that describe its shape."""
    label_token_ids: dict[str, int] | None
    """Ids of a verifier's labels in its tokenizer, none if it has a head; null for a generator."""
    answer_token_ids: dict[str, int] = {}
    """Ids of words with which an instruct model may answer a prompt."""


def known_model(checkpoint: Path) -> KnownModel | None:
    """The published model that a checkpoint folder is named after, or None."""
    return _known().get(checkpoint.name)


def known_names() -> list[str]:
    """The names of the models whose shape is known."""
    return sorted(_known())


@cache
def _known() -> dict[str, KnownModel]:
    text = (files(__package__) / "known_models.json").read_text(encoding="utf-8")
    return {name: KnownModel.model_validate(data) for name, data in json.loads(text).items()}


def config_of(checkpoint: Path) -> dict[str, Any]:
    """The config.json of a checkpoint or a published model; raises CheckpointError for neither."""
    file, published = checkpoint / "config.json", known_model(checkpoint)
    if published is not None and not file.is_file():
        return published.config
    require_checkpoint_folder(checkpoint)
    return read_json_object(file)


def shape_of(checkpoint: Path, target: Target | None = None) -> ModelConfig:
    """The shape of a checkpoint that exists, or of the published model of its name.

    With a target, what it cannot use is refused: mixtures of experts by openvino, whose exporter
    has none, and a checkpoint's own code by TensorRT-LLM, whose quantiser would run it. Engines
    that are started load quantised checkpoints, too. Raises CheckpointError.
    """
    file, data = checkpoint / "config.json", config_of(checkpoint)
    if target in STARTED:
        data = {name: value for name, value in data.items() if name != "quantization_config"}
    # a verifier with a head is written again, without its code
    if target == "tensorrt" and data.get("auto_map") and not head_of(data):
        raise CheckpointError(
            f"{file} has an auto_map: the checkpoint brings Python code of its own, and "
            "TensorRT-LLM's converter would run it.",
            hint="Use a checkpoint of an architecture that transformers knows by itself.",
        )
    mixtures = {} if target == "openvino" else MIXTURES
    return parse_model_config(file, data, {**ARCHITECTURES, **mixtures})
