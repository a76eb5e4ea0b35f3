"""The NVIDIA GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from tts.base.errors import BuildError

_PATIENCE_S = 30.0
_QUERY = "--query-gpu=index,name,memory.total,memory.used,driver_version,compute_cap"


@dataclass(frozen=True)
class NvidiaGpu:
    """One GPU; memory in bytes."""

    index: int
    name: str
    total: int
    occupied: int
    driver: str
    capability: str


def require_gpus() -> list[NvidiaGpu]:
    """The GPUs of this machine; raises BuildError saying why there are none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise BuildError(
            "There is no NVIDIA driver on this machine (no nvidia-smi); engines are built on the "
            "kind of GPU that serves them.",
            hint="Look at the commands with --dry-run, and build on the machine with the GPU.",
        )
    command = [program, _QUERY, "--format=csv,noheader,nounits"]
    failed: str | None = None
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
        if answer.returncode:
            failed = (answer.stdout + answer.stderr).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        failed = str(error)
    if failed is not None:
        raise BuildError(
            f"nvidia-smi finds no usable GPU: {(failed or 'it said nothing').splitlines()[-1]}",
            hint="The NVIDIA driver is not loaded, or no GPU is visible here.",
        )
    return [gpu for line in answer.stdout.splitlines() if (gpu := _gpu(line))]


def gpus() -> list[NvidiaGpu]:
    """The GPUs of this machine; none where there is no driver."""
    try:
        return require_gpus()
    except BuildError:
        return []


def _gpu(line: str) -> NvidiaGpu | None:
    try:
        index, name, total, occupied, driver, capability = (
            part.strip() for part in line.split(",")
        )
        return NvidiaGpu(
            int(index), name, int(total) << 20, int(occupied) << 20, driver, capability
        )
    except ValueError:  # a device that does not tell its memory
        return None
