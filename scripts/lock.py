"""Resolve pyproject.toml into requirements.lock and requirements-dev.lock, with hashes.

uv resolves it, for Linux x86_64 and Python 3.11, which is what scripts/setup installs; a version
stays as it is until it is asked for anew. PyPI has no CPU build of torch: that wheel is fetched as
scripts/setup fetches it, and resolved with the rest.

    scripts/run lock                              # after a change of pyproject.toml
    scripts/run lock --upgrade-package aiohttp    # options of `uv pip compile`: a newer aiohttp
    scripts/run lock --upgrade                    # the newest of everything but torch
    scripts/run lock --torch 2.13.0
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from urllib.parse import unquote

from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from scripts.programs import ROOT

LOCK, DEV_LOCK = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
DEMO = ("cpu", "triton")
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_35")


def main() -> None:
    """Write both files anew; further options go to uv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", metavar="VERSION", help="the version of torch; as it is locked")
    arguments, options = parser.parse_known_args()
    locked = LOCK.read_text(encoding="utf-8") + DEV_LOCK.read_text(encoding="utf-8")
    torch = arguments.torch or re.findall(r"^torch==([\d.]+)", locked, re.M)[0]
    with tempfile.TemporaryDirectory(prefix="tts-lock-") as name:
        folder = Path(name)
        fetch_cpu_torch(torch, folder)
        whole, demo = folder / "whole", folder / "demo"
        whole.write_text(locked.replace("-r ", "# "))
        pin = folder / "torch.txt"
        pin.write_text(f"torch=={torch}+cpu\n")
        resolve(whole, ["dev"], pin, *options)
        resolve(demo, DEMO, whole)
        first = entries(demo.read_text(encoding="utf-8"))
        everything = entries(whole.read_text(encoding="utf-8"))
        besides = {name: text for name, text in everything.items() if name not in first}
        megabytes = {name: size / 1e6 for name, size in sizes(whole, folder).items()}
    for file, title, include, part in (
        (LOCK, "What the demo needs (extras cpu and triton)", "", first),
        (DEV_LOCK, "What development needs besides (extra dev)", f"-r {LOCK.name}\n", besides),
    ):
        total = sum(megabytes[name] for name in part)
        header = (
            f"# {title}: {len(part)} wheels, {total:.0f} MB\n# Written by `scripts/run lock`.\n"
        )
        file.write_text(header + include + "".join(part.values()), encoding="utf-8")
        print(f"{file}: {len(part)} wheels, {total:.0f} MB")


def fetch_cpu_torch(version: str, folder: Path) -> None:
    """Put torch's CPU build into the folder; ends the program if no index has it."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    download += ["--dest", str(folder)]
    for source in ([], ["--index-url", TORCH_INDEX]):
        pip = [*download, *source, f"torch=={version}+cpu"]
        if subprocess.run(pip, stderr=subprocess.DEVNULL).returncode == 0:
            return
    sys.exit(f"error: no CPU build of torch {version}: see `pip download torch=={version}+cpu`")


def resolve(to: Path, extras: list[str] | tuple[str, ...], constraints: Path, *more: str) -> None:
    """Pins and hashes of what these extras and the build need; those in the file are preferred."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        build = "\n".join(tomllib.load(file)["build-system"]["requires"])
    inputs = ["pyproject.toml", "-", *(word for extra in extras for word in ("--extra", extra))]
    uv(to, *inputs, "--constraints", str(constraints), "--generate-hashes", *more, text=build)


def sizes(locked: Path, folder: Path) -> dict[str, int]:
    """Bytes of the wheel that is installed here, by package."""
    file = folder / "pylock.toml"
    uv(file, str(locked), "--no-deps", "--format", "pylock.toml")
    rank = {tag: place for place, tag in enumerate(sys_tags())}
    best: dict[str, tuple[int, int]] = {}
    for package in tomllib.loads(file.read_text(encoding="utf-8"))["packages"]:
        for wheel in package["wheels"]:
            name = unquote(wheel["url"].rpartition("/")[2])
            size = wheel.get("size") or (folder / name).stat().st_size
            tags = parse_wheel_filename(name)[3]
            place = min(rank.get(tag, len(rank)) for tag in tags)
            best[package["name"]] = min(best.get(package["name"], (place, size)), (place, size))
    return {name: size for name, (_, size) in best.items()}


def uv(to: Path, *words: str, text: str = "") -> None:
    """Run `uv pip compile`, which says itself what is wrong."""
    command = ["uv", "pip", "compile", *PLATFORM, "--only-binary", ":all:", "--quiet"]
    plain = ["--no-header", "--no-annotate", "--find-links", str(to.parent)]
    try:
        process = subprocess.run(
            [*command, *plain, *words, "--output-file", to], input=text, text=True, cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        sys.exit("error: uv, which resolves what is needed, is not here: scripts/setup dev")
    if process.returncode:
        sys.exit(process.returncode)


def entries(locked: str) -> dict[str, str]:
    """The text of each requirement of a lock file, with its hashes, by name."""
    entries = re.findall(r"^(?:[^#\s-].*\n)(?:[ ].*\n)*", locked, re.M)
    return {canonicalize_name(re.split("[=; ]", entry)[0]): entry for entry in entries}


if __name__ == "__main__":
    main()
