"""Write requirements.lock: the pins of constraints.txt, each with the hashes of its wheels.

scripts/setup and the Dockerfile accept no file with another hash. The hashes are those that PyPI
names, asked by uv; with the CPU build of torch, which PyPI has not, as scripts/setup finds it. The
file has two parts, what the demo needs and what development needs besides, each with what has to be
downloaded for it: all wheels are, once. What needs what is read from this environment.

    pip install uv && scripts/run lock    # after a change of constraints.txt or pyproject.toml
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
DEMO = "tts-toolkit[cpu,triton,verify]"
DEVELOPMENT = "tts-toolkit[dev]"
HEADER = """\
# The wheels that may be installed: written by `scripts/run lock` from constraints.txt, not by hand.
"""
DOWNLOAD = (sys.executable, "-m", "pip", "download", "--no-deps")
OF_THE_VENV = "setuptools"
"""What torch needs and a virtual environment brings."""


def main() -> None:
    """Write the lock file anew."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    if shutil.which("uv") is None:
        sys.exit("error: uv, which asks PyPI for the hashes, is not on PATH: pip install uv")
    locked = locked_by_uv()
    (torch,) = (line for line in locked.splitlines(keepends=True) if line.startswith("torch=="))
    with tempfile.TemporaryDirectory(prefix="tts-lock-") as folder:
        wheel = cpu_torch(torch.removeprefix("torch==").split()[0], Path(folder))
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        locked = locked.replace(torch, f"{torch}    --hash=sha256:{sha256} \\\n")
        download(locked, Path(folder))
        LOCK.write_text(in_parts(locked, sizes(Path(folder))), encoding="utf-8")
    print(f"{LOCK}: {locked.count('--hash=')} wheels")


def locked_by_uv() -> str:
    """The pins for every platform, in the format of pip's requirements files."""
    compile_ = ["uv", "pip", "compile", "--no-deps", "--universal", "--python-version", "3.11"]
    only_hashes = ["--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate"]
    command = [*compile_, *only_hashes, "--quiet", str(PINS)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def cpu_torch(version: str, folder: Path) -> Path:
    """Torch's CPU build for this machine and this Python, as a wheel in the folder.

    Ends the program if neither this machine's pip nor PyTorch's own index has one.
    """
    for source in [f"torch=={version}+cpu"], ["--index-url", TORCH_INDEX, f"torch=={version}"]:
        pip = [*DOWNLOAD, "--quiet", "--dest", str(folder)]
        if subprocess.run([*pip, *source], stderr=subprocess.DEVNULL).returncode == 0:
            return next(folder.iterdir())
    sys.exit(f"error: no CPU build of torch {version}: see `pip download torch=={version}+cpu`")


def download(locked: str, folder: Path) -> None:
    """Everything but torch, for this machine and this Python."""
    others = folder / "others.txt"
    others.write_text("".join(each for name, each in entries(locked) if name != "torch"))
    pip = [*DOWNLOAD, "--only-binary=:all:", "--require-hashes"]
    subprocess.run([*pip, "--dest", folder, "-r", others], check=True)


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of each wheel in a folder, by the name of its package."""
    return {
        str(parse_wheel_filename(wheel.name)[0]): wheel.stat().st_size
        for wheel in folder.glob("*.whl")
    }


def in_parts(locked: str, bytes_of: dict[str, int]) -> str:
    """The lock file: what the demo needs first; each part under what it downloads."""
    demo = needed([*build_system(), DEMO])
    text = HEADER
    for title, is_in in (
        ("For the demo (extras cpu, triton and verify)", demo.__contains__),
        ("Besides, for development (extra dev)", lambda name: name not in demo),
    ):
        part = [(name, entry) for name, entry in entries(locked) if is_in(name)]
        megabytes = sum(bytes_of.get(name, 0) for name, _ in part) / 1e6
        text += f"# {title}: {len(part)} wheels, {megabytes:.0f} MB\n"
        text += "".join(entry for _, entry in part)
    return text


def entries(locked: str) -> list[tuple[str, str]]:
    """Name and text, with its hashes, of each requirement of a lock file."""
    found = re.findall(r"^(?:[^#\s].*\n)(?:[ ].*\n)*", locked, re.M)
    return [(canonicalize_name(re.split("[=; ]", entry)[0]), entry) for entry in found]


def build_system() -> list[str]:
    """What building the project needs."""
    return list(_project()["build-system"]["requires"])


def needed(wanted: Iterable[str]) -> dict[str, list[Requirement]]:
    """All that these need in turn on this machine, by name, each with what is asked of it.

    The project's needs are those of pyproject.toml, those of others what is installed here says.
    """
    waiting = [Requirement(text) for text in wanted]
    found: dict[str, list[Requirement]] = {}
    seen = set()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in (OF_THE_VENV, "tts-toolkit"):
            found.setdefault(name, []).append(one)
        for extra in {"", *one.extras}:
            if (name, extra) not in seen and name != OF_THE_VENV:
                seen.add((name, extra))
                waiting += _needed_by(name, extra)
    return found


def _needed_by(name: str, extra: str) -> list[Requirement]:
    if name == "tts-toolkit":
        project = _project()["project"]
        texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
        extra = ""
    else:
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # pinned, and not in this environment
            return []
    found = map(Requirement, texts)
    return [each for each in found if not each.marker or each.marker.evaluate({"extra": extra})]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
