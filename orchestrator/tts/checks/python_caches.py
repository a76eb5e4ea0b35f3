"""The check of the compiled Python code that lies beside the models of a repository."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tts.build import paths
from tts.build.spec import Deployment
from tts.serving.contract import Finding

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
