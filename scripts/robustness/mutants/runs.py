"""Runs of pytest on a copy of the code."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest

from .forks import NOT_REPLACED
from .sources import environment

MEMORY = 16 << 30
"""Bytes of address space that a trial may take: a mutant may grow a list for ever."""

Outcome = Literal["killed", "timed out", "survived", "not reached"]
"""What is not reached is executed by no fast test in pytest's own process, and survives.

A mutant that hangs is noticed too; but on a loaded machine any test may run out of time.
"""


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
