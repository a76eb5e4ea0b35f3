"""What this machine can run and what is missing, in plain words."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tts.build import paths
from tts.build.builder import require_current
from tts.build.errors import TtsError
from tts.build.spec import bundled_deployments, load_deployment
from tts.serving.tritonserver import find_tritonserver

MINIMUM_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing looked at. `missing` means that the CPU target cannot run without it."""

    what: str
    state: Literal["ok", "note", "missing"]
    found: str
    advice: str = ""


def diagnose() -> list[Observation]:
    """Look at everything; takes about a second."""
    return [
        _python(),
        _cpu(),
        _memory(),
        _openvino(),
        _tritonserver(),
        _verification(),
        *_storage(),
        *_deployments(),
        _gpu(),
    ]


def _python() -> Observation:
    version = platform.python_version()
    if sys.version_info[:2] == (3, 11):
        return Observation("Python", "ok", version)
    return Observation("Python", "missing", version, "The bundled Triton server needs Python 3.11.")


def _cpu() -> Observation:
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        line = next((text for text in info.read_text().splitlines() if "flags" in text), "")
        flags = set(line.split())
    fast = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    found = f"{os.cpu_count()} cores, {platform.machine()}, {', '.join(fast) or 'no AVX2'}"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return Observation(
            "CPU", "missing", found, "The bundled Triton server is Linux x86_64 only."
        )
    if (os.cpu_count() or 1) < 2:
        return Observation("CPU", "note", found, "Two engines on one core take turns: expect half.")
    return Observation("CPU", "ok", found)


def _memory() -> Observation:
    free = psutil.virtual_memory().available
    found = f"{free / 1024**3:.1f} GiB free"
    if free < MINIMUM_FREE_BYTES:
        return Observation("memory", "note", found, "The demo needs about 2 GiB.")
    return Observation("memory", "ok", found)


def _openvino() -> Observation:
    versions = {name: _version(name) for name in ("openvino", "openvino-genai")}
    found = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    if all(versions.values()):
        return Observation("CPU engine", "ok", found)
    return Observation("CPU engine", "missing", found, "pip install openvino openvino-genai")


def _tritonserver() -> Observation:
    try:
        return Observation("Triton server", "ok", find_tritonserver().describe())
    except TtsError as error:
        return Observation("Triton server", "missing", error.message, error.hint or "")


def _verification() -> Observation:
    absent = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    if not absent:
        return Observation("engine verification", "ok", "torch and transformers are installed")
    return Observation(
        "engine verification",
        "note",
        f"{' and '.join(absent)} not installed: engines are built but not compared",
        "pip install 'tts-toolkit[verify]' (choose a CPU build of torch)",
    )


def _storage() -> Iterator[Observation]:
    for what, folder in (("engines", paths.built_dir("x").parent), ("runs", paths.runs_dir())):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free / 1024**3
        found = f"{folder} ({free:.0f} GiB free)"
        if not os.access(existing, os.W_OK):
            advice = "Set TTS_HOME to a folder that you may write to."
            yield Observation(what, "missing", f"{folder} is not writable", advice)
        else:
            yield Observation(what, "ok" if free > 1 else "note", found)


def _deployments() -> Iterator[Observation]:
    without_gpu = shutil.which("nvidia-smi") is None
    for_gpus = []
    for name in bundled_deployments():
        what = f"deployment {name}"
        try:
            deployment = load_deployment(name)
            if deployment.target == "tensorrt" and without_gpu:
                for_gpus.append(name)
                continue
            require_current(deployment)
        except TtsError as error:
            yield Observation(what, "note", error.message, error.hint or "")
        else:
            yield Observation(what, "ok", "both engines are built and current")
    if for_gpus:
        advice = "`tts plan NAME` shows, without a GPU, what fits on which."
        yield Observation("deployments for NVIDIA GPUs", "note", ", ".join(for_gpus), advice)


def _gpu() -> Observation:
    command = shutil.which("nvidia-smi")
    names: list[str] = []
    if command:
        query = [command, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        names = done.stdout.split("\n") if done.returncode == 0 else []
    found = ", ".join(name.strip() for name in names if name.strip())
    if found:
        return Observation("NVIDIA GPU", "ok", found)
    return Observation(
        "NVIDIA GPU", "note", "none found: target tensorrt cannot be built or run here"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
