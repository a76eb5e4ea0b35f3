"""Programs run as they are, without an activated environment, and are found by their names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.programs import ROOT, STARTER, command, programs


def test_what_has_no_extension_is_shell_alone() -> None:
    """Everything else is linted and typed as a module."""
    for file in sorted((ROOT / "scripts").rglob("*")):
        if file.is_file() and not file.suffix:
            assert os.access(file, os.X_OK), file
            assert file.read_text().startswith("#!/usr/bin/env bash\n"), file


def test_every_program_says_what_it_is_for() -> None:
    known = programs()
    assert {"vendor", "bench.schedules", "bench.memory", "training.demo_models"} <= known.keys()
    assert [name for name, line in known.items() if not line] == []


def test_without_a_name_the_programs_are_listed() -> None:
    listed = subprocess.run([STARTER], capture_output=True, text=True, check=True, cwd="/")
    wrong = subprocess.run([STARTER, "no"], capture_output=True, text=True, check=False, cwd="/")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "there is no program 'no'" in wrong.stderr
    for name, line in programs().items():
        assert f"{name} " in listed.stdout
        assert line in listed.stdout
        assert line in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench.schedules", "size"])
def test_a_program_runs_by_its_name_from_anywhere(name: str) -> None:
    for start in ([str(STARTER), name], command(name)):
        done = subprocess.run(
            [*start, "--help"], capture_output=True, text=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("usage: ")


def test_the_environment_beside_it_runs_a_program(tmp_path: Path) -> None:
    """From a path with spaces, and with the arguments as they were given."""
    starter = tmp_path / "check out" / "scripts" / "run"
    starter.parent.mkdir(parents=True)
    shutil.copy(STARTER, starter)
    python = tmp_path / "check out" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "beside it: $@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [starter, "a b", "$c"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.stdout == f"beside it: {starter.with_name('programs.py')} a b $c\n", done.stderr


def test_without_one_beside_it_the_python_of_the_path_does(tmp_path: Path) -> None:
    starter = tmp_path / "scripts" / "run"
    starter.parent.mkdir()
    shutil.copy(STARTER, starter)
    starter.with_name("programs.py").write_text("print(1 + 1)\n")
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([starter], capture_output=True, text=True, check=False, env=variables)
    assert done.stdout == "2\n", done.stderr
