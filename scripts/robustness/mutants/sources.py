"""Copies of the source roots, in which the tests of a checkout run."""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import os
import py_compile
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of the source roots in a temporary folder; what is large there is linked."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        (copy / "pyproject.toml").symlink_to(root / "pyproject.toml")  # by which a checkout is told
        for source in (root / name for name in SOURCE_ROOTS if (root / name).exists()):
            (copy / source.name).mkdir()
            for folder_beside in (entry for entry in source.iterdir() if entry.name != "tts"):
                _link(folder_beside, copy / source.name / folder_beside.name)
            ignore = shutil.ignore_patterns("__pycache__")
            code = shutil.copytree(source / "tts", copy / source.name / "tts", ignore=ignore)
            compileall.compile_dir(code, quiet=1, invalidation_mode=_UNCHECKED)
        yield copy


def _link(folder: Path, new: Path) -> None:
    """Files are copied, because deployments name checkpoints from where they are themselves."""
    new.mkdir()
    for entry in folder.iterdir():
        if entry.is_dir():
            (new / entry.name).symlink_to(entry)
        else:
            shutil.copy2(entry, new / entry.name)


@contextlib.contextmanager
def replaced(file: Path, source: str) -> Iterator[None]:
    """Another source in a file of a copy."""
    original = file.read_text(encoding="utf-8")
    compiled = Path(importlib.util.cache_from_source(str(file)))
    compiled.unlink()  # Python would not look whether it is older
    file.write_text(source, encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(original, encoding="utf-8")
        py_compile.compile(str(file), invalidation_mode=_UNCHECKED)


def environment(copy: Path) -> dict[str, str]:
    """The variables with which tests run on a copy, the same way each time."""
    scripts = Path(__file__).resolve().parents[1]  # for the plugins of pytest in this folder
    path = [*(str(copy / name) for name in SOURCE_ROOTS), str(scripts)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HYPOTHESIS_PROFILE": "unshrunk",
    }
