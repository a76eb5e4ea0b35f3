"""Deployments to check: bundled ones with something changed, and checkpoints that may be broken."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.findings import Finding
from tts.build.builder import target_module
from tts.build.checkpoint import stamp_files
from tts.build.inputs import EngineInputs
from tts.build.manifest import MANIFEST_FILE, new_manifest, write_record
from tts.build.model_config import shape_of
from tts.build.spec import Deployment, load_deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine
from tts.checks import lint

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
LLAMA = "llama-1b-prm-8b-h100-bf16"


def changed(base: str, changes: Mapping[str, Any]) -> Deployment:
    """A bundled deployment with fields changed by their paths."""
    data = load_deployment(base).model_dump(mode="json")
    for path, value in changes.items():
        place = data
        *parents, last = path.split(".")
        for parent in parents:
            place[parent] = place[parent] or {}
            place = place[parent]
        place[last] = value
    return Deployment.model_validate(data)


def serious(deployment: Deployment) -> list[Finding]:
    return [finding for finding in lint(deployment) if finding.severity != "note"]


def leave_engines(deployment: Deployment) -> None:
    """Engines as TensorRT-LLM would have left them, as far as they are read back."""
    target = target_module(deployment.target)
    for role, spec in deployment.engines().items():
        folder = paths.engine_dir(deployment.name, role)
        folder.mkdir(parents=True)
        config: dict[str, Any] = {"version": contract.TENSORRT_LLM}
        for name, value in expected_engine(spec, shape_of(spec.checkpoint, "tensorrt")).items():
            place = config
            *parents, last = contract.engine_fields()[name].path.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "rank0.engine").write_text("engine")
        stamps = stamp_files(spec.checkpoint)
        made = target.settings_for(EngineInputs(deployment, role))
        manifest = new_manifest(folder, spec.checkpoint, stamps, made, None, "a test")
        write_record(folder, MANIFEST_FILE, manifest)


def checkpoint(tmp_path: Path, name: str = "demo-generator") -> Path:
    """A checkpoint whose files may be changed."""
    folder = tmp_path / name
    folder.mkdir()
    for file in (CHECKPOINTS / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder
