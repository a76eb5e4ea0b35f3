"""The model of a checkpoint that target tensorrt converts: its shape, and that it is safe."""

from __future__ import annotations

from pathlib import Path

from ..checkpoint_files import read_json_object
from ..errors import CheckpointError
from ..model_config import ModelConfig
from .known_models import shape_of


def read_model(checkpoint: Path) -> ModelConfig:
    """The shape of a checkpoint, or of the published model of its name; raises CheckpointError.

    A checkpoint that brings code is refused: TensorRT-LLM's quantiser would run it, whatever it is
    told.
    """
    file = checkpoint / "config.json"
    if file.is_file() and read_json_object(file).get("auto_map"):
        raise CheckpointError(
            f"{file} has an auto_map: the checkpoint brings Python code of its own, and "
            "TensorRT-LLM's converter would run it.",
            hint="Use a checkpoint of an architecture that transformers knows by itself.",
        )
    return shape_of(checkpoint)
