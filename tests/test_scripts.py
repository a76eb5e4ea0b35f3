"""The scripts run as they are, without an activated environment."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    file
    for file in sorted((ROOT / "scripts").iterdir())
    if file.is_file() and "exec python" in file.read_text().partition("\n")[0]
]


def test_every_script_is_executable_and_says_what_runs_it() -> None:
    for file in (ROOT / "scripts").iterdir():
        if file.is_file():
            assert os.access(file, os.X_OK), file
            first = file.read_text().partition("\n")[0]
            assert first == "#!/usr/bin/env bash" or file in SCRIPTS, first
            assert len(first) < 127, "the longest first line that old kernels read"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_a_script_finds_the_environment_beside_it(script: Path, tmp_path: Path) -> None:
    """A copy of its first line runs the environment's Python, from anywhere, with its arguments."""
    copy = tmp_path / "check out" / "scripts" / script.name
    copy.parent.mkdir(parents=True)
    first = script.read_text().partition("\n")[0]
    copy.write_text(f"{first}\nimport sys; print(sys.executable, sys.argv)\n")
    copy.chmod(0o755)
    python = tmp_path / "check out" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "beside it: $@"\n')
    python.chmod(0o755)
    done = subprocess.run([copy, "a b", "$c"], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == f"beside it: {copy} a b $c\n", done.stderr


def test_without_one_beside_it_the_python_of_the_path_runs(tmp_path: Path) -> None:
    copy = tmp_path / "scripts" / "some"
    copy.parent.mkdir()
    shutil.copy(SCRIPTS[0], copy)
    copy.write_text(f"{SCRIPTS[0].read_text().partition(chr(10))[0]}\nprint(1 + 1)\n")
    done = subprocess.run([copy], capture_output=True, text=True, check=False)
    if "not found" in done.stderr:
        pytest.skip("there is no python in PATH here")
    assert done.stdout == "2\n", done.stderr
