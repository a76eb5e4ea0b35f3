"""The modules of the toolkit that models of target llmapi bring into NVIDIA's container."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

from tts.build.spec import Deployment
from tts.engines import wire
from tts.engines.llmapi import MODULES

_MODELS = (wire.GENERATOR, wire.PRM_ENGINE)


def carried_files(deployment: Deployment) -> dict[Path, Path]:
    """Path in the repository -> the toolkit's own file, for everything that models bring along."""
    if deployment.target != "llmapi":
        return {}
    sources = dict(_sources())
    return {Path(model, "1", path): file for model in _MODELS for path, file in sources.items()}


def carry(deployment: Deployment, repository: Path) -> None:
    """Copy the modules into a repository that is being rendered."""
    for path, source in carried_files(deployment).items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, repository / path)


def _sources() -> Iterator[tuple[Path, Path]]:
    """Each module's path below a folder on sys.path, and its file."""
    for name in MODULES:
        spec = importlib.util.find_spec(f"tts.{name}")
        assert spec is not None  # a test imports all of them
        assert spec.origin is not None
        file, folder = Path(spec.origin), Path("tts", *name.split("."))
        yield (
            (folder / file.name if spec.submodule_search_locations else folder.with_suffix(".py")),
            file,
        )
