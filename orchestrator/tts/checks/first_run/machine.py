"""What a first run needs to know of this machine, each asked of the program that knows it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Sequence

_PATIENCE_S = 30.0
_IMPORT_S = 300.0
"""TensorRT-LLM takes a minute to import, from a cold disk more."""


def docker() -> str | None:
    """The version of docker's daemon; None if it is not installed or does not answer."""
    return _answer("docker", "version", "--format", "{{.Server.Version}}")


def has_image(image: str) -> bool:
    """Whether docker has downloaded an image."""
    return _answer("docker", "image", "inspect", "--format", "{{.Id}}", image) is not None


def said_in(image: str, command: Sequence[str]) -> str | None:
    """What a command says in a container with the GPUs, errors included; None if docker cannot."""
    run = ("run", "--rm", "--pull=never", "--gpus=all", image)
    done = _ran("docker", *run, *command, timeout_s=_IMPORT_S)
    return done.stdout + done.stderr if done else None


def versions() -> dict[str, str]:
    """What runs the toolkit here."""
    try:
        toolkit = importlib.metadata.version("tts-toolkit")
    except importlib.metadata.PackageNotFoundError:
        toolkit = "not installed"
    return {
        "tts-toolkit": toolkit,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "docker": docker() or "none that answers",
    }


def _answer(program: str, *arguments: str) -> str | None:
    """The output of a program; None if it is not there, fails or takes too long."""
    done = _ran(program, *arguments, timeout_s=_PATIENCE_S)
    return done.stdout.strip() if done and done.returncode == 0 else None


def _ran(
    program: str, *arguments: str, timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    """A program that has run to its end; None if it is not there or takes too long."""
    if (found := shutil.which(program)) is None:
        return None
    try:
        return subprocess.run(
            [found, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
