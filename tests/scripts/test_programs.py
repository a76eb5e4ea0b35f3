"""Programs run as they are, without an activated environment, and are found by their names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.programs import ROOT, command

STARTER = ROOT / "scripts" / "run"


def output(*words: object, **options: object) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, **options).stdout


def test_what_has_no_extension_is_shell_alone() -> None:
    """Everything else is linted and typed as a module."""
    for file in sorted((ROOT / "scripts").rglob("*")):
        if file.is_file() and not file.suffix:
            assert os.access(file, os.X_OK), file
            assert file.read_text().startswith("#!/usr/bin/env bash\n"), file


def test_without_a_name_the_programs_are_listed_with_what_they_are_for() -> None:
    listed = output(STARTER, cwd="/")
    wrong = subprocess.run([STARTER, "no"], capture_output=True, text=True, check=False, cwd="/")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "there is no program 'no'" in wrong.stderr
    known = dict(line.split(maxsplit=1) for line in listed.splitlines() if line.startswith("  "))
    assert {"vendor", "bench.schedules", "training.demo_models"} <= known.keys()
    assert all(line in wrong.stderr for line in known.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench.schedules", "bench.servers", "size"])
def test_a_program_runs_by_its_name_from_anywhere(name: str) -> None:
    for start in ([STARTER, name], command(name)):
        assert output(*start, "--help", cwd="/").startswith("usage: ")


def test_the_environment_beside_it_runs_a_program(tmp_path: Path) -> None:
    """From a path with spaces, and with the arguments as they were given."""
    starter = tmp_path / "check out" / "scripts" / "run"
    starter.parent.mkdir(parents=True)
    shutil.copy(STARTER, starter)
    python = tmp_path / "check out" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "beside it: $@"\n')
    python.chmod(0o755)
    said = output(starter, "a b", "$c", cwd="/")
    assert said == f"beside it: {starter.with_name('programs.py')} a b $c\n"


def test_without_one_beside_it_the_python_of_the_path_does(tmp_path: Path) -> None:
    starter = tmp_path / "scripts" / "run"
    starter.parent.mkdir()
    shutil.copy(STARTER, starter)
    starter.with_name("programs.py").write_text("print(1 + 1)\n")
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert output(starter, env=variables) == "2\n"
