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

    A checkpoint that brings code is refused: TensorRT-LLM's quantiser would run it, whatever its
    options.
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
