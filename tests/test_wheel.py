"""The wheel holds everything, works where it is installed, and what it makes lies elsewhere."""

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from tests.test_docs import TENSORRT, commands_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """A virtual environment with the wheel, and the dependencies that lie beside the checkout."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    options = ("--quiet", "--no-index", "--no-deps", "--no-compile")
    subprocess.run([*pip, *options, wheel], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    here = Path(metadata.distribution("typer").locate_file(""))
    (site / "dependencies.pth").write_text(
        f"{here}\n"
    )  # whose own .pth files, as ours, are not read
    return folder / "bin"


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("unpacked") / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def output(tmp_path, *command):
    """What a command prints, away from the checkout."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel_and_both_can_be_uploaded(wheel, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "xf", sdist, "-C", tmp_path], check=True)
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "-t", "wheel"], cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(tmp_path / wheel.name) as ours, zipfile.ZipFile(wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
    twine = [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel]
    done = subprocess.run(twine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_commands_work_in_a_clean_environment(clean, tmp_path):
    tts = clean / "tts"
    assert output(tmp_path, tts, "--version") == f"tts {metadata.version('tts-toolkit')}"
    assert "demo" in output(tmp_path, tts, "list", "deployments")
    assert "--generator" in output(tmp_path, tts, "init", "--help")


def test_what_the_guide_to_gpus_says_runs_where_the_wheel_is_installed(clean, tmp_path):
    """Each line that needs neither a GPU nor a network, in the guide's order."""
    lines = [
        words
        for words in commands_of(TENSORRT)
        if words[0] in ("init", "plan") or "--dry-run" in words
    ]
    assert {words[0] for words in lines} == {"init", "plan", "build-engines"}
    for words in lines:
        output(tmp_path, clean / "tts", *words)
    # a plain install would not see what is downloaded to the clone
    installs = re.findall(r"^pip install (.*)$", TENSORRT.read_text(), re.M)
    assert {words.partition(" . ")[0].strip() for words in installs} <= {"-e", "-e ."}


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
def test_a_program_imports_its_names_from_the_top(clean, tmp_path):
    code = "import tts; from tts import Session; print(tts.__file__, Session.__module__)"
    file, module = output(tmp_path, clean / "python", "-c", code).split()
    assert file.startswith(str(clean.parent))
    assert module == "tts.session.session"


def test_an_installed_wheel_finds_its_files_and_writes_elsewhere(clean, tmp_path):
    code = (
        "from tts.base import paths\nfrom tts.build import spec\n"
        "print(paths.__file__); print(spec.load_deployment('demo').generator.checkpoint)\n"
        "print(paths.engine_dir('demo', 'generator')); print(paths.runs_dir())\n"
        "print(paths.templates_dir())"
    )
    found = output(tmp_path, clean / "python", "-c", code).split("\n")
    module, checkpoint, engine, runs, templates = found
    for brought in (module, checkpoint, templates):
        assert brought.startswith(str(clean.parent))
    assert list(Path(templates).rglob("*.j2"))
    for made in (engine, runs):
        assert made.startswith(str(tmp_path))
