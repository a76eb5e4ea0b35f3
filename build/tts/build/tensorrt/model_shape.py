"""The shape of a model by its checkpoint: from config.json, or known as published.

Published models are known by name, so that deployments can be planned before the download.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tts.base.errors import CheckpointError

from ..checkpoint_files import read_json_object, require_checkpoint_folder
from ..model_config import ARCHITECTURES, MIXTURES, ModelConfig, parse_model_config
from ..spec import STARTED, Target
from ..verifiers.head import head_of


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
    """The fields of the config.json of a checkpoint, or of the published model of its name.

    Raises CheckpointError where the checkpoint is neither there nor known.
    """
    file, published = checkpoint / "config.json", known_model(checkpoint)
    if published is not None and not file.is_file():
        return published.config
    require_checkpoint_folder(checkpoint)
    return read_json_object(file)


def shape_of(checkpoint: Path, target: Target | None = None) -> ModelConfig:
    """The shape of a checkpoint that exists, or of the published model of its name.

    With a target, what it cannot use is refused: mixtures of experts by openvino, whose exporter
    has none, and code that a checkpoint brings by TensorRT-LLM, whose quantiser would run it
    whatever its options. Engines that are started load quantised checkpoints, too. Raises
    CheckpointError, also if the checkpoint is neither there nor known.
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
