"""Which tests reach which lines, as recorded once for a state of the code and its tests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from coverage import CoverageData

from .runs import SOURCE_ROOTS, Forks, copied, environment

FAST = ("-m", "not server and not slow")
"""What pytest is told to leave out: the tests that take long."""

BUDGET_S = 60.0
"""Seconds of tests of other packages that a mutant meets at most, the fastest tests."""


@dataclass(frozen=True)
class Reach:
    """A recording: the seconds of each test that passed, and coverage.py's data of its lines."""

    seconds: dict[str, float]
    data: CoverageData

    def tests_of(self, module: str, lines: Collection[int]) -> list[str]:
        """The tests that execute one of a module's lines, in the order in which to run them.

        Those of its package are first; of the others it is those that take BUDGET_S together.
        Lines that are executed at import concern all tests of the package, and any test that
        executes another line of the module.
        """
        tests_by_line = self._tests_by_line(module)
        near = self.tests_beside(module)
        if self.at_import(module, lines):
            tests = {test for reached in tests_by_line.values() for test in reached}
        else:
            tests = {test for line in lines for test in tests_by_line.get(line, [])}
            near = [test for test in near if test in tests]
        far = sorted(tests & self.seconds.keys() - set(near), key=self.seconds.__getitem__)
        until = accumulate(self.seconds[test] for test in far)
        return near + [test for test, s in zip(far, until, strict=True) if s <= BUDGET_S]

    def at_import(self, module: str, lines: Collection[int]) -> bool:
        """Whether one of a module's lines is executed outside of tests."""
        tests_by_line = self._tests_by_line(module)
        return any("" in tests_by_line.get(line, []) for line in lines)

    def _tests_by_line(self, module: str) -> dict[int, list[str]]:
        for file in self.data.measured_files():
            if file.endswith("/" + module):
                return self.data.contexts_by_lineno(file)
        return {}

    def tests_beside(self, module: str) -> list[str]:
        """The tests of the module's package: of its own name first, then fastest first."""
        folder, own = tests_folder(module), f"/test_{Path(module).stem}.py::"
        known = [test for test in self.seconds if test.startswith(folder)]
        return sorted(known, key=lambda test: (own not in test, self.seconds[test]))

    def limits(self, tests: Sequence[str]) -> dict[str, float]:
        """The seconds after which each of the tests hangs, on a machine that does other work."""
        return {test: 60 + 20 * self.seconds[test] for test in tests}


def tests_folder(module: str) -> str:
    """Where the tests of the module's package are: tests/ mirrors the packages.

    >>> tests_folder("orchestrator/tts/search/tree.py")
    'tests/search/'
    """
    return f"tests/{module.split('/tts/')[-1].split('/')[0]}/"


def reach(root: Path, among: Sequence[str] = ()) -> Reach:
    """What the fast tests of `root` reach. It is recorded if the code or a test has changed.

    `among` are folders or files of tests, if not all are meant.

    Raises RuntimeError if a test fails, in which case its failure is on standard output.
    """
    folder = Path(tempfile.gettempdir()) / f"mutants-{os.getuid()}-{_digest(root, among)}"
    if not folder.exists():
        half = Path(tempfile.mkdtemp(prefix="mutants-"))
        try:
            with copied(root) as copy:
                _record(root, among, copy, half)
            half.rename(folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return _recording(folder)


def _recording(folder: Path) -> Reach:
    data = CoverageData(str(folder / "lines"))
    data.read()
    return Reach(json.loads((folder / "seconds.json").read_text(encoding="utf-8")), data)


def _record(root: Path, among: Sequence[str], copy: Path, folder: Path) -> None:
    variables = {"RECORDED": str(folder), "RECORDED_SOURCES": f"{copy}/*"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0"]
    command += ["-p", "mutants.recording", *FAST, *among]
    done = subprocess.run(command, cwd=root, env=environment(copy) | variables, check=False)
    if done.returncode:
        raise RuntimeError(f"Without a mutant pytest ends with status {done.returncode}.")
    recorded = _recording(folder)
    fastest_first = sorted(recorded.seconds, key=recorded.seconds.__getitem__)
    with Forks(root, copy, fastest_first) as forks:
        if (said := forks.outcome(recorded.limits(fastest_first))) != "survived":
            raise RuntimeError(f"Without a mutant the tests, fastest first, are {said}.")


def _digest(root: Path, among: Sequence[str]) -> str:
    """A hash of the code, of the tests, of how they are run and of which are."""
    files = [root / "pyproject.toml"]
    sources = (f"{source}/tts" for source in SOURCE_ROOTS)
    for name in (*sources, "tests", "scripts/robustness/mutants"):
        files += sorted((root / name).rglob("*.py"))
    content = hashlib.sha256("\n".join(sorted(among)).encode())
    for file in files:
        content.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:16]
