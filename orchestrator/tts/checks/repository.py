"""Checks of the Triton model repository: as rendered, on disk, and the compiled code in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tts.build import paths
from tts.build.errors import CheckpointError
from tts.build.spec import Deployment
from tts.serving.repository.check import Finding, check_repository
from tts.serving.repository.model_configs import model_configs

from .findings import no_folder, not_checked


def rendering(deployment: Deployment) -> Iterator[Finding]:
    """Check that a model repository can be rendered; that of target openvino needs its engines."""
    if deployment.tensorrt is None or not deployment.engines():
        return
    try:
        model_configs(deployment)
    except CheckpointError as error:
        if (deployment.verifier_model.tokenizer_folder / "tokenizer.json").is_file():
            return  # the check of the tokenizers reports it
        yield not_checked(
            f"the model repository. {error.message.removesuffix('.')}",
            "verifier.labels",
            "prm_score reads the logits at these ids",
            error.hint or "",
        )


def on_disk(deployment: Deployment) -> Iterator[Finding]:
    """The repository that lies there. Target openvino has it rendered again at each start."""
    if deployment.tensorrt is None:
        return
    folder = paths.repository_dir(deployment.name)
    if what := no_folder(folder):
        fix = f"Remove it, then run: tts render {deployment.named}"
        yield Finding(what, str(folder), "it is what a server loads", fix)
        return
    if not folder.is_dir():
        yield not_checked(
            "there is no model repository yet",
            str(folder),
            "it is what a server loads",
            f"Run: tts render {deployment.name}",
        )
        return
    with suppress(CheckpointError):  # the check of the rendering reports it
        for finding in check_repository(folder, deployment):
            yield replace(finding, where=f"{folder.name}/{finding.where}")


_HEADER = 16
"""Bytes before the code: magic number, flags, then the source's time and size, or its hash (PEP
552)."""
_BY_HASH = 1  # a bit of the flags


def python_caches(deployment: Deployment) -> Iterator[Finding]:
    """Every __pycache__ of the model repository is beside code, and compiled from it."""
    repository = paths.repository_dir(deployment.name)
    for folder in sorted(repository.rglob("__pycache__")):
        if any(folder.parent.glob("*.py")):
            for file in sorted(folder.glob("*.pyc")):
                yield from _compiled(file)
        elif deployment.target == "openvino":  # the others have a check of all their files
            yield Finding(
                "does not belong there",
                str(folder),
                "Triton serves every model and version it finds",
                "Remove it.",
            )


def _compiled(file: Path) -> Iterator[Finding]:
    try:
        why = _stale(file)
    except OSError as error:
        why = f"it cannot be read ({error.strerror})"
    if why:
        yield Finding(
            f"is not compiled from the code beside it: {why}",
            str(file),
            "Python may run it in place of the file that it is named after",
            f"Remove the folder {file.parent}.",
            "warning",
        )


def _stale(compiled: Path) -> str | None:
    """Why a .pyc file is not of the source beside it; None if it is."""
    source = compiled.parents[1] / f"{compiled.name.partition('.')[0]}.py"
    if not source.is_file():
        return f"there is no {source.name}"
    header, status = compiled.read_bytes()[:_HEADER], source.stat()
    if len(header) < _HEADER:
        return "it is cut short"
    flags, *made_from = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if flags & _BY_HASH:
        same = header[8:] == importlib.util.source_hash(source.read_bytes())
        return None if same else f"its hash is not that of {source.name}"
    if made_from != [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]:
        return f"{source.name} has another time or size"
    return None
