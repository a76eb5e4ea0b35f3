"""The wheel holds everything, and what it makes goes to a user folder, never into the package."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def installed(unpacked, tmp_path, code):
    """Run code against the unpacked wheel, not the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(unpacked)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_wheel_holds_what_git_holds(unpacked):
    listed = subprocess.run(
        ["git", "ls-files", "*/tts/*", "engines/deployments", "engines/checkpoints",
         "triton_repo/templates"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    places = {
        "engines/deployments": "tts/bundled/deployments",
        "engines/checkpoints": "tts/bundled/checkpoints",
        "triton_repo/templates": "tts/bundled/templates",
    }
    assert listed.stdout
    for name in listed.stdout.split():
        if not (ROOT / name).exists() or name.startswith("tests/"):
            continue
        if name.endswith("tts/__init__.pyi"):  # for pyright in a checkout
            assert not (unpacked / "tts" / "__init__.pyi").exists()
            continue
        place = name.split("/", 1)[1]
        for source, target in places.items():
            if name.startswith(source):
                place = target + name.removeprefix(source)
        assert (unpacked / place).is_file(), f"{name} is not in the wheel"


@pytest.mark.slow
def test_a_program_imports_its_names_from_the_top(unpacked, tmp_path):
    code = "import tts; from tts import Session; print(tts.__file__, Session.__module__)"
    file, module = installed(unpacked, tmp_path, code).split()
    assert file == str(unpacked / "tts" / "__init__.py")
    assert module == "tts.session.session"


def test_an_installed_wheel_finds_its_files_and_writes_elsewhere(unpacked, tmp_path):
    code = (
        "from tts.build import paths, spec\n"
        "print(paths.__file__); print(spec.load_deployment('demo').generator.checkpoint)\n"
        "print(paths.engine_dir('demo', 'generator')); print(paths.runs_dir())\n"
        "print(paths.templates_dir())"
    )
    module, checkpoint, engine, runs, templates = installed(unpacked, tmp_path, code).split("\n")
    assert module.startswith(str(unpacked))
    assert checkpoint.startswith(str(unpacked))
    assert templates.startswith(str(unpacked))
    assert list(Path(templates).rglob("*.j2"))
    for made in (engine, runs):
        assert made.startswith(str(tmp_path))
