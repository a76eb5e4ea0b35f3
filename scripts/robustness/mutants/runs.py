"""Copies of the code, and runs of a checkout's tests on them."""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import json
import os
import py_compile
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest

from .forks import NOT_REPLACED

SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
MEMORY = 16 << 30
"""Bytes of address space that a trial may take: a mutant may grow a list for ever."""

Outcome = Literal["killed", "timed out", "survived", "not reached"]
"""What is not reached is executed by no fast test in pytest's own process, and survives.

A mutant that hangs is noticed too; but on a loaded machine any test may run out of time.
"""


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


def outcome(root: Path, copy: Path, limits: dict[str, float]) -> Outcome:
    """What tests of `root` say of the code of `copy`, in this order, each in so many seconds.

    A mutant that cannot be imported is killed. Raises RuntimeError if pytest found no test.
    """
    files = sorted({test.partition("::")[0] for test in limits})
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=0"]
    command += ["-p", "mutants.chosen", *files]
    with TemporaryDirectory(prefix="mutants-") as folder:
        chosen = Path(folder) / "chosen.json"
        chosen.write_text(json.dumps(limits), encoding="utf-8")
        variables = environment(copy) | {"CHOSEN": str(chosen)}
        status = _status(command, root, variables)
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"There is none of the recorded tests in {' '.join(files)}.")
    return _meaning(status)


@dataclass(frozen=True)
class Change:
    """Another source of a file, in which one function differs."""

    file: str
    source: str
    function: tuple[str, int]
    """Its qualified name and its first line."""


class Forks:
    """A process that has collected tests of `root`, and tries mutants of functions in its forks.

    Ten times faster than `outcome`, but what has been executed at import stays as it was.
    """

    def __init__(self, root: Path, copy: Path, tests: Collection[str]) -> None:
        """Raises RuntimeError if the tests cannot be collected."""
        files = sorted({test.partition("::")[0] for test in tests})
        self._folder = TemporaryDirectory(prefix="mutants-")
        trials, self._trials = os.pipe()
        self._replies, replies = os.pipe()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0"]
        command += ["-p", "mutants.forks", f"--basetemp={self._folder.name}/tests", *files]
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env=environment(copy) | {"FORKS": f"{trials} {replies}"},
            pass_fds=(trials, replies),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(trials)
        os.close(replies)
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        self._answers = os.fdopen(self._replies, encoding="ascii")
        self._next_answer()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._trials)
        self._answers.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def outcome(self, limits: dict[str, float], change: Change | None = None) -> Outcome | None:
        """What tests say of the code of the copy after a change; None: it needs a new process."""
        line = json.dumps({"limits": limits, "change": change and asdict(change)}).encode() + b"\n"
        while line:
            line = line[os.write(self._trials, line) :]
        status = int(self._next_answer())
        return None if status == NOT_REPLACED else _meaning(status)

    def _next_answer(self) -> str:
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError("pytest ended while it collected the tests.")
        return answer


def _meaning(status: int) -> Outcome:
    if status == -signal.SIGALRM:
        return "timed out"
    return "survived" if status == 0 else "killed"


def _status(command: list[str], cwd: Path, variables: dict[str, str]) -> int:
    """The exit status of a process; what it has started is killed."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            return process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
