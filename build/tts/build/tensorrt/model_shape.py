"""The shape of a model by its checkpoint, read from config.json or known as published."""

from __future__ import annotations

from pathlib import Path

from ..checkpoint_files import read_json_object
from ..errors import CheckpointError
from ..model_config import (
    ARCHITECTURES,
    MIXTURES,
    ModelConfig,
    parse_model_config,
    read_model_config,
)
from ..verifiers.head import HEADED
from .known_models import known_model


def shape_of(checkpoint: Path) -> ModelConfig:
    """The shape of a checkpoint that exists, or of the published model of its name.

    Mixtures of experts are read too, which the exporter of target openvino refuses. Raises
    CheckpointError if the checkpoint is neither there nor known.
    """
    supported = {**ARCHITECTURES, **MIXTURES}
    known = known_model(checkpoint)
    if known is None or (checkpoint / "config.json").is_file():
        return read_model_config(checkpoint, supported)
    return parse_model_config(checkpoint / "config.json", known.config, supported)


def read_model(checkpoint: Path) -> ModelConfig:
    """`shape_of` a checkpoint that TensorRT-LLM may convert; raises CheckpointError.

    A checkpoint that brings code is refused: TensorRT-LLM's quantiser would run it, whatever it is
    told.
    """
    file = checkpoint / "config.json"
    data = read_json_object(file) if file.is_file() else {}
    # a verifier with a head is written again, without its code
    if data.get("auto_map") and data.get("architectures") not in [[name] for name in HEADED]:
        raise CheckpointError(
            f"{file} has an auto_map: the checkpoint brings Python code of its own, and "
            "TensorRT-LLM's converter would run it.",
            hint="Use a checkpoint of an architecture that transformers knows by itself.",
        )
    return shape_of(checkpoint)
