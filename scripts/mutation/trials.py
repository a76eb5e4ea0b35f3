"""Trials of mutants: whether the tests that concern a module notice a change of it."""

from __future__ import annotations

import contextlib
import difflib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from .edits import Edit, edits

SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
MEMORY = 16 << 30
"""Bytes of address space that a trial may take: a mutant may grow a list for ever."""

TESTS: dict[str, tuple[str, ...]] = {
    "orchestrator/tts/search/": ("tests/search", "tests/driver"),
    "orchestrator/tts/scheduling/": ("tests/scheduling", "tests/driver"),
    "orchestrator/tts/driver/": ("tests/driver", "tests/search/test_known_bugs.py"),
    "orchestrator/tts/runlog/": ("tests/runlog", "tests/driver"),
    "build/tts/build/tensorrt/engine_memory.py": (
        "tests/build/test_engine_memory.py",
        "tests/build/test_memory_plan.py",
    ),
}
"""What is mutated, and the tests that concern it; of several that fit, the first."""


Outcome = Literal["killed", "timed out", "survived"]
"""A mutant that hangs is noticed too; but on a loaded machine any trial may run out of time."""


@dataclass(frozen=True)
class Mutant:
    """One edit of one module, which is named by its path from the repository's root."""

    module: str
    edit: Edit


def draw(root: Path, modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many different mutants of the modules, or all if there are fewer; the same by seed."""
    mutants = [
        Mutant(module, edit)
        for module in sorted(modules)
        for edit in edits((root / module).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def modules_below(root: Path, prefix: str) -> list[str]:
    """The modules in a folder, or the module itself."""
    path = root / prefix
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sorted(str(file.relative_to(root)) for file in files)


def tests_of(module: str) -> tuple[str, ...]:
    """The tests that concern a module; KeyError if the table names none."""
    for prefix, tests in TESTS.items():
        if module.startswith(prefix):
            return tests
    raise KeyError(module)


def nearest_first(root: Path, module: str) -> tuple[str, ...]:
    """The tests that concern a module, those of its own name before the others."""
    tests = tests_of(module)
    name = f"test_{Path(module).stem}.py"
    own = [f"{folder}/{name}" for folder in tests if (root / folder / name).is_file()]
    return (*own, *tests)


def diff(root: Path, mutant: Mutant) -> str:
    """What the mutant changes, as a unified diff without context."""
    source = (root / mutant.module).read_text(encoding="utf-8")
    old, new = source.splitlines(), mutant.edit.applied(source).splitlines()
    lines = difflib.unified_diff(old, new, mutant.module, mutant.module, n=0, lineterm="")
    return "\n".join(lines)


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of the source roots in a temporary folder; what is no code there is linked."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        (copy / "pyproject.toml").symlink_to(root / "pyproject.toml")  # by which a checkout is told
        for source in (root / name for name in SOURCE_ROOTS if (root / name).exists()):
            (copy / source.name).mkdir()
            for entry in source.iterdir():
                if entry.name != "tts":
                    (copy / source.name / entry.name).symlink_to(entry)
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / "tts", copy / source.name / "tts", ignore=ignore)
        yield copy


@contextlib.contextmanager
def applied(copy: Path, mutant: Mutant) -> Iterator[None]:
    """The mutant in place of its module, in a copy."""
    file = copy / mutant.module
    source = file.read_text(encoding="utf-8")
    file.write_text(mutant.edit.applied(source), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(source, encoding="utf-8")


def outcome(root: Path, copy: Path, tests: Sequence[str], limit_s: float) -> Outcome:
    """What the tests of `root` say of the code of `copy`.

    Raises RuntimeError if pytest found no tests, or did not understand its arguments.
    """
    path = os.pathsep.join(str(copy / name) for name in SOURCE_ROOTS)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HYPOTHESIS_PROFILE"] = "unshrunk"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status in (4, 5):  # arguments that pytest refuses, no tests
        raise RuntimeError(f"pytest ended with status {status} for {' '.join(tests)}")
    if status is None:
        return "timed out"
    return "survived" if status == 0 else "killed"
