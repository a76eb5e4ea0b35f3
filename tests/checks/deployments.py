"""Deployments to check: bundled ones with something changed, and checkpoints that may be broken."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tts.build import paths
from tts.build.spec import Deployment, load_deployment
from tts.checks import lint
from tts.serving.contract import Finding

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


def checkpoint(tmp_path: Path, name: str = "demo-generator") -> Path:
    """A checkpoint whose files may be changed."""
    folder = tmp_path / name
    folder.mkdir()
    for file in (CHECKPOINTS / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder
