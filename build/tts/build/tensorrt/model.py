"""What target tensorrt needs to know of a checkpoint: its shape, its experts, its safety."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint import expected_tensors
from ..errors import CheckpointError
from ..files import read_json_object
from ..model_config import ModelConfig, parse_model_config
from ..weights import weight_files
from .known_models import shape_of

_DENSE_FORM = {
    "MixtralForCausalLM": "MistralForCausalLM",
    "Qwen2MoeForCausalLM": "Qwen2ForCausalLM",
    "Qwen3MoeForCausalLM": "Qwen3ForCausalLM",
}
"""Models whose feed-forward layers are experts, by the model that they are otherwise."""
_EXPERT_COUNTS = ("num_local_experts", "num_experts")
_EXPERT_FIELDS = (*_EXPERT_COUNTS, "moe_intermediate_size")


@dataclass(frozen=True)
class GpuModel:
    """A model as TensorRT-LLM converts it."""

    architecture: str
    config: ModelConfig
    """Its shape; of a mixture of experts, that of all but the experts."""
    experts: int = 0
    """0 for a dense model."""


def read_gpu_model(checkpoint: Path) -> GpuModel:
    """The model of a checkpoint, or of the published model of its name; raises CheckpointError."""
    file = checkpoint / "config.json"
    data: Mapping[str, Any] = read_json_object(file) if file.is_file() else {}
    _refuse_code(checkpoint, data)
    names = data.get("architectures")
    architecture = names[0] if isinstance(names, list) and len(names) == 1 else None
    if architecture not in _DENSE_FORM:
        config = shape_of(checkpoint)
        return GpuModel(config.architecture, config)
    experts = next((data[name] for name in _EXPERT_COUNTS if data.get(name)), None)
    if not isinstance(experts, int) or experts < 1:
        raise CheckpointError(f"{file} names no number of experts ({' or '.join(_EXPERT_COUNTS)}).")
    dense = {name: value for name, value in data.items() if name not in _EXPERT_FIELDS}
    config = parse_model_config(file, dense | {"architectures": [_DENSE_FORM[architecture]]})
    return GpuModel(architecture, config, experts)


def num_parameters(checkpoint: Path, model: GpuModel) -> int:
    """Parameters of a model; of a mixture of experts, from the size of its 16-bit files."""
    if model.experts:
        return sum(file.stat().st_size for file in weight_files(checkpoint)) // 2
    return sum(math.prod(shape) for shape in expected_tensors(model.config).values())


def _refuse_code(checkpoint: Path, config: Mapping[str, Any]) -> None:
    """TensorRT-LLM's quantiser would run code that a checkpoint brings, whatever it is told."""
    if config.get("auto_map"):
        raise CheckpointError(
            f"{checkpoint / 'config.json'} has an auto_map: the checkpoint brings Python code of "
            "its own, and TensorRT-LLM's converter would run it.",
            hint="Use a checkpoint of an architecture that transformers knows by itself.",
        )
