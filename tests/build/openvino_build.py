"""Building engines of target openvino, and what lies beside them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tts.build.builder import BuildReport, build_engines
from tts.build.spec import Deployment

Deploy = Callable[..., Deployment]


def build(deployment: Deployment, **options: Any) -> list[BuildReport]:
    """Build without comparison, unless it is asked for."""
    return build_engines(deployment, **({"verify": False, "say": print} | options))


def leftovers(home: Path) -> list[str]:
    """Names of what lies beside the engines, the lock file apart."""
    names = {entry.name for entry in (home / "built" / "test").iterdir()}
    return sorted(names - {"generator", "verifier", ".build.lock"})


def identity(report: BuildReport) -> tuple[int, int]:
    """Differs whenever the engine's weights have been written again."""
    status = (report.folder / "openvino_model.bin").stat()
    return status.st_ino, status.st_mtime_ns


def touch_weights(checkpoint: Path) -> None:
    """Flip one bit in place: same size."""
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
