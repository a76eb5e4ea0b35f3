"""Checks that what should be a file is one, and what should be a folder."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from tts.build import paths
from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.manifest import read_manifest
from tts.build.spec import Deployment
from tts.serving.contract import Finding

_NAMES = (*CHECKPOINT_FILES, "chat_template.jinja")
_WEIGHTS = "*.safetensors"


def checkpoint_files(deployment: Deployment) -> Iterator[Finding]:
    """Each checkpoint is a folder, and its files are files."""
    for role, spec in deployment.engines().items():
        folder = spec.checkpoint
        why = "it would be taken for missing"
        fix = "Download or save the checkpoint again."
        if what := no_folder(folder):
            yield Finding(
                f"{folder} {what}",
                f"{role}.checkpoint",
                "a checkpoint is a folder of files",
                f"Set {role}.checkpoint to the folder that holds its config.json.",
            )
            continue
        for file in (*(folder / name for name in _NAMES), *folder.glob(_WEIGHTS)):
            yield from _no_file(file, why, fix)


def engine_files(deployment: Deployment) -> Iterator[Finding]:
    """The files of each built engine are files."""
    why = "the engine cannot be loaded"
    fix = f"Remove it, then run: tts build-engines {deployment.named}"
    for role in deployment.engines():
        folder = paths.engine_dir(deployment.name, role)
        if what := no_folder(folder):
            yield Finding(what, str(folder), why, fix)
            continue
        manifest = read_manifest(folder)
        names = {"config.json", "manifest.json", *(manifest.engine_files if manifest else ())}
        for name in sorted(names):
            yield from _no_file(folder / name, why, fix)


def no_folder(path: Path) -> str | None:
    """What is wrong with a path at which there is something else than a folder."""
    kind = _kind_of(path)
    return None if kind in (None, "a folder") else f"is {kind}, where a folder is expected"


def _no_file(path: Path, why: str, fix: str) -> Iterator[Finding]:
    if (kind := _kind_of(path)) not in (None, "a file"):
        yield Finding(f"is {kind}, where a file is expected", str(path), why, fix)


def _kind_of(path: Path) -> str | None:
    """What a path is, with its article; None if nothing is there."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode):
        return "a file"
    return "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
