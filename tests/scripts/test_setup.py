"""Setting up: what is asked of pip and uv, here stand-ins, and what a second call does."""

import os
import shutil
import subprocess

import pytest
from tests.programs import ROOT

PYTHON = """#!/bin/sh
case "$*" in
*-m\\ venv*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo venv >>asked ;;
*pip*config*) echo http://mirror ;;
*pip*install*)
    echo "pip $(sed -n 's/==.*//p' .venv/pip.txt)" >>asked
    grep -q no-torch broken && case "$*" in *--index-url*) exit 0 ;; *) exit 1 ;; esac
    true ;;
esac
"""
UV = """#!/bin/sh
case "$*" in
*sync*) echo "sync $(echo "$*" | grep -o 'requirements[^ ]*')" >>asked; echo "$*" >options
    echo " + rich==1"; echo "Installed 2 packages" ;;
*) touch .venv/bin/tts; chmod +x .venv/bin/tts ;;
esac
grep -q "no network" broken && echo "error: no network" && exit 2
grep -q stopped broken && kill -INT $PPID
true
"""


@pytest.fixture
def setup(tmp_path):
    """Run scripts/setup in a checkout of its own; the exit status, what it asked for, and said."""
    for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock", "scripts/setup"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {"python": PYTHON, "bin/uv": UV}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(*arguments, broken=""):
        asked = tmp_path / "asked"
        asked.write_text("")
        (tmp_path / "broken").write_text(broken)
        path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
        environment = {"HOME": os.environ["HOME"], "PATH": path, "PYTHON": str(tmp_path / "python")}
        ended = subprocess.run(
            [tmp_path / "scripts" / "setup", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        return ended.returncode, asked.read_text().splitlines(), ended.stderr

    return run


def test_what_is_up_to_date_is_left_alone(setup, tmp_path):
    status, asked, text = setup()
    assert (status, asked) == (0, ["venv", "sync requirements.lock"])
    assert "[setup] Installed 2 packages\n" in text
    assert "rich" not in text, "not every package by name"
    options = (tmp_path / "options").read_text()
    assert "--require-hashes --only-binary :all: requirements.lock" in options
    assert "--default-index http://mirror" in options, "which uv does not read itself"
    assert setup()[:2] == (0, [])
    assert setup("dev")[:2] == (0, ["pip torch", "sync requirements-dev.lock"])
    assert setup()[:2] == (0, []), "development has what the demo needs"
    (tmp_path / "requirements.lock").write_text("# another")
    assert setup()[:2] == (0, ["pip torch", "sync requirements-dev.lock"]), "it stays one"
    assert setup("everything")[0] == 1


def test_without_uv_pip_installs_the_locked_one(setup, tmp_path):
    (tmp_path / "bin" / "uv").rename(tmp_path / "uv")
    status, asked, _ = setup()
    assert asked == ["venv", "pip uv"]
    assert status == 1, "where the stand-in has brought none"


@pytest.mark.parametrize(
    ("broken", "status", "words", "again"),
    [
        ("no network", 1, "[setup] The packages come from the network", []),
        ("stopped", 130, "[setup] stopped; run it again to go on", ["venv"]),
    ],
)
def test_it_says_what_to_do_and_goes_on(setup, broken, status, words, again):
    ended, _, text = setup(broken=broken)
    assert (ended, text.count(words)) == (status, 1)
    assert setup()[:2] == (0, [*again, "sync requirements.lock"]), "half a package is not kept"


def test_torch_is_of_the_machines_own_index_or_pytorchs(setup):
    assert setup("dev", broken="no-torch")[:2] == (
        0,
        ["venv", "pip torch", "pip torch", "sync requirements-dev.lock"],
    )
