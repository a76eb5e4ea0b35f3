"""What setting up tells of pip, and what it removes before pip looks at what is there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts import install
from tests.programs import ROOT

SAID = """\
Collecting torch==2.13.0+cpu
Collecting aiohttp==3.14.5 (from -r requirements.txt (line 1))
  Downloading aiohttp-3.14.5-cp311-cp311-linux_x86_64.whl (1.5 MB)
Requirement already satisfied: rich==15.0.0 in ./lib (from -r requirements.txt (line 9)) (15.0.0)
Collecting zipp==4.1.2 (from -r requirements.txt (line 12))
  Using cached zipp-4.1.2-py3-none-any.whl (500 kB)
Installing collected packages: zipp, aiohttp
"""


def test_progress_counts_packages(capsys, monkeypatch):
    monkeypatch.setattr(install, "EVERY_S", {True: -1.0, False: -1.0})
    progress = install.Progress(packages=4)
    for line in SAID.splitlines():
        progress.line(line)
    assert capsys.readouterr().err.splitlines() == [
        "[setup] 1 of 4 packages: torch",
        "[setup] 2 of 4 packages: aiohttp",
        "[setup] 3 of 4 packages: rich",
        "[setup] 4 of 4 packages: zipp",
        "[setup] unpacking 2 packages",
    ]


def test_a_package_that_was_stopped_at_is_installed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(install.sysconfig, "get_path", lambda name: str(tmp_path))
    for name, files in (("whole-1", ("METADATA", "RECORD")), ("half-1", ("METADATA",))):
        (tmp_path / f"{name}.dist-info" / "licenses").mkdir(parents=True)
        for file in files:
            (tmp_path / f"{name}.dist-info" / file).touch()
    install.forget_halves()
    assert [path.name for path in tmp_path.iterdir()] == ["whole-1.dist-info"]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("WARNING: Retrying after connection broken by 'X'\n" * 3, "no package index"),
        ("", "no torch"),
    ],
)
def test_a_failure_says_whether_there_is_a_network(tmp_path, monkeypatch, capsys, before, said):
    monkeypatch.setattr(install, "LOG", tmp_path / "setup.log")
    install.LOG.write_text(f"{before}ERROR: No matching distribution found for torch==2.13.0\n")
    with pytest.raises(SystemExit):
        install.fail("no torch")
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def checkout(tmp_path):
    """scripts/setup beside a program that notes what it is asked for, in place of pip's."""
    for name in ("pyproject.toml", "requirements.lock", "scripts/setup"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts" / "install.py").write_text(
        "import pathlib, sys\n"
        "if pathlib.Path('stop').exists(): sys.exit(130)\n"
        "pathlib.Path('asked').open('a').write(sys.argv[1] + ' ')\n"
        "tts = pathlib.Path('.venv/bin/tts'); tts.touch(); tts.chmod(0o755)\n"
    )
    return tmp_path


def setup(checkout: Path, *arguments: str) -> int:
    done = subprocess.run(
        [checkout / "scripts" / "setup", *arguments],
        env={**os.environ, "PYTHON": install.sys.executable},
        capture_output=True,
        check=False,
    )
    return done.returncode


@pytest.mark.slow
def test_what_is_up_to_date_is_left_alone(checkout):
    asked = checkout / "asked"
    assert setup(checkout) == 0
    assert setup(checkout) == 0
    assert asked.read_text() == "demo "
    assert setup(checkout, "dev") == 0
    assert setup(checkout) == 0, "development has what the demo needs"
    assert asked.read_text() == "demo dev "
    (checkout / "requirements.lock").write_text("# another")
    assert setup(checkout) == 0
    assert asked.read_text() == "demo dev demo "
    assert setup(checkout, "everything") == 1


@pytest.mark.slow
def test_a_setup_that_was_stopped_goes_on(checkout):
    (checkout / "stop").touch()
    assert setup(checkout) == 130
    (checkout / "stop").unlink()
    assert setup(checkout) == 0
    assert (checkout / "asked").read_text() == "demo "
