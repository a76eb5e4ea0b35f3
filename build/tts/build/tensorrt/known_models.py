"""Published models by name, so that deployments can be planned before the download."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


class KnownModel(BaseModel):
    """What is published about one model."""

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
