"""Where the stand-in of TensorRT-LLM and the facts are, and how it is put in its place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tts.build import paths
from tts.build.spec import Deployment

Misbehave = Callable[..., None]
"""Tells the stand-in what to do wrong from now on; nothing: to behave."""
SITE = Path(__file__).parent / "standin"
FACTS: dict[str, Any] = json.loads((SITE / "facts.json").read_text())
"""What is known of TensorRT-LLM's Python API, with sources."""


def stand_in(patch: pytest.MonkeyPatch, built: Deployment) -> None:
    """Let Python find it, and give it the OpenVINO engines that are built of `built`."""
    engines = {
        str(spec.checkpoint): str(paths.engine_dir(built.name, role))
        for role, spec in built.engines().items()
    }
    patch.syspath_prepend(str(SITE))
    patch.setenv("PYTHONPATH", str(SITE))  # for commands, whose engines have their path
    patch.setenv("TTS_STANDIN_ENGINES", json.dumps(engines))
