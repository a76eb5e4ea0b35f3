"""What TensorRT-LLM's backend takes, by data: of a configuration, of the command that runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tts.serving.contract import contract
from tts.serving.repository.render import parse_config

LAUNCH_FILE = Path(__file__).parent / "stand_ins" / "launch.json"
LAUNCH: dict[str, Any] = json.loads(LAUNCH_FILE.read_text())
"""Facts on launching a server with TensorRT-LLM engines, with sources."""


def unexpected(folder: Path) -> list[str]:
    """What the backend would refuse or misread in a rendered repository, a line each."""
    return [
        f"{file.parent.name}: {what}" for file in folder.glob("*/*.pbtxt") for what in _of(file)
    ]


def _of(file: Path) -> Iterator[str]:
    config = parse_config(file)
    for key, value in config.parameters.items():
        fact = contract().parameter(key)
        if fact is None:
            continue
        if fact.forbidden:
            yield f"{key} must not be set"
        try:
            contract().canonical(fact, value.string_value)
        except ValueError as error:
            yield f"{key} {error}"
    if config.backend == "tensorrtllm":
        missing = {fact.key for fact in contract().parameters if fact.required}
        yield from sorted(missing - set(config.parameters))
