"""Where the stand-in of TensorRT-LLM is, and how it is put in its place."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tts.build import paths
from tts.build.spec import Deployment

Misbehave = Callable[..., None]
"""Tells the stand-in what to do wrong from now on; nothing: to behave."""
SITE = Path(__file__).parent / "standin"


def stand_in(patch: pytest.MonkeyPatch, built: Deployment) -> None:
    """Let Python find it, and give it the OpenVINO engines that are built of `built`."""
    engines = {
        str(spec.checkpoint): str(paths.engine_dir(built.name, role))
        for role, spec in built.engines().items()
    }
    patch.syspath_prepend(str(SITE))
    patch.setenv("TTS_STANDIN_ENGINES", json.dumps(engines))
