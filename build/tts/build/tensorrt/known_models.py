"""Published models by name, so that a deployment can be planned before they are downloaded."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..model_config import (
    ARCHITECTURES,
    MIXTURES,
    ModelConfig,
    parse_model_config,
    read_model_config,
)


class KnownModel(BaseModel):
    """What is published about one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Where its files are."""
    config: dict[str, Any]
    """The fields of its config.json that describe its shape."""
    label_token_ids: dict[str, int] | None
    """Ids of a verifier's labels in its tokenizer; null for a generator."""


def known_model(checkpoint: Path) -> KnownModel | None:
    """The published model that a checkpoint folder is named after, or None."""
    return _known().get(checkpoint.name)


def shape_of(checkpoint: Path) -> ModelConfig:
    """The shape of a checkpoint that lies there, or of the published model of its name.

    Mixtures of experts are read too, which the exporter of target openvino refuses. Raises
    CheckpointError if the checkpoint is neither there nor known.
    """
    supported = {**ARCHITECTURES, **MIXTURES}
    known = known_model(checkpoint)
    if known is None or (checkpoint / "config.json").is_file():
        return read_model_config(checkpoint, supported)
    return parse_model_config(checkpoint / "config.json", known.config, supported)


@cache
def _known() -> dict[str, KnownModel]:
    text = (files(__package__) / "known_models.json").read_text(encoding="utf-8")
    return {name: KnownModel.model_validate(data) for name, data in json.loads(text).items()}
