"""A home of its own for every test, and engines as a build would have left them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tts.build import paths
from tts.build.checkpoint import stamp_files
from tts.build.manifest import MANIFEST_FILE, new_manifest, write_record
from tts.build.spec import Deployment
from tts.build.targets import target_module
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.model_shape import read_model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def build() -> Callable[[Deployment], None]:
    """Writes engines as TensorRT-LLM would have left them, as far as they are read back."""

    def make(deployment: Deployment) -> None:
        target = target_module(deployment.target)
        for role, spec in deployment.engines().items():
            folder = paths.engine_dir(deployment.name, role)
            folder.mkdir(parents=True)
            config: dict[str, Any] = {"version": contract.TENSORRT_LLM}
            for name, value in expected_engine(role, spec, read_model(spec.checkpoint)).items():
                place = config
                *parents, last = contract.engine_fields()[name].path.split(".")
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = value
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "rank0.engine").write_text("engine")
            stamps = stamp_files(spec.checkpoint)
            made = target.settings_for(deployment, role)
            manifest = new_manifest(folder, spec.checkpoint, stamps, made, None, "a test")
            write_record(folder, MANIFEST_FILE, manifest)

    return make
