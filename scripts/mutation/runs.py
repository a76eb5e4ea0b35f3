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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from .sources import environment

MEMORY = 16 << 30
"""Bytes of address space that a trial may take: a mutant may grow a list for ever."""

Outcome = Literal["killed", "timed out", "survived", "not reached"]
"""What is not reached is executed by no fast test in pytest's own process, and survives.

A mutant that hangs is noticed too; but on a loaded machine any test may run out of time.
"""


def outcome(root: Path, copy: Path, limits: dict[str, float]) -> Outcome:
    """What tests of `root` say of the code of `copy`, in this order, each in so many seconds.

    Raises RuntimeError if pytest found none of the tests, or did not understand its arguments.
    """
    files = sorted({test.partition("::")[0] for test in limits})
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "mutation.chosen", *files]
    with TemporaryDirectory(prefix="mutants-") as folder:
        chosen = Path(folder) / "chosen.json"
        chosen.write_text(json.dumps(limits), encoding="utf-8")
        variables = environment(copy) | {"CHOSEN": str(chosen)}
        status = _status(command, root, variables, limits.values())
    if status in (4, 5):  # arguments that pytest refuses, no tests
        raise RuntimeError(f"pytest ended with status {status} for {' '.join(files)}")
    if status is None or status == -signal.SIGALRM:
        return "timed out"
    return "survived" if status == 0 else "killed"


def _status(
    command: list[str], cwd: Path, variables: dict[str, str], limits: Collection[float]
) -> int | None:
    """The exit status of a process; None if it took as long as all its tests may together."""
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
            return process.wait(60 + sum(limits))
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
