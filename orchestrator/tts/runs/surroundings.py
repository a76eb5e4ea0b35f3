"""What a session ran with: versions and the machine, for whoever reads its log later."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def surroundings() -> dict[str, str]:
    """The versions of tts and Python, the system, and the machine's processors."""
    try:
        own = version("tts-toolkit")
    except PackageNotFoundError:  # a copy of the sources that nobody installed
        own = "unknown"
    return {
        "tts": own,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} x {_processor()}",
    }


def _processor() -> str:
    """The processor's name; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
