"""`tts` in processes of its own, and what of it is running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from scripts import programs

TTS = [sys.executable, "-c", programs.TTS]
START_S = 900.0
"""How long `tts serve` may take until it serves."""


def start(
    home: Path, *arguments: object, variables: dict[str, str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    """Start a command with a TTS_HOME; `streams` are stdout and stderr, as Popen takes them."""
    return subprocess.Popen(
        [*TTS, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TTS_HOME": str(home), **(variables or {})},
        start_new_session=True,
        **{"stdout": subprocess.DEVNULL, **streams},
    )


def run(home: Path, *arguments: object) -> str:
    """What a command prints; raises RuntimeError with its errors if it fails."""
    process = start(home, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"tts {arguments[0]} failed: {errors.decode(errors='replace')}")
    return out.decode()


def serve(
    home: Path, deployment: str, errors: Path, variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start `tts serve`, which says things in a file, and wait until it serves."""
    with errors.open("wb") as err:
        serving = start(home, "serve", deployment, variables=variables, stderr=err)
    deadline = time.monotonic() + START_S
    while b"Press Ctrl-C" not in errors.read_bytes():
        if serving.poll() is not None or time.monotonic() > deadline:
            serving.kill()
            raise RuntimeError(f"tts serve failed: {errors.read_text()}")
        time.sleep(0.1)
    return serving


def build_demo(home: Path) -> None:
    """Build the demo pair's engines in a home."""
    run(home, "build-engines", "demo", "--no-verify")


def processes(home: Path, name: str = "", *, place: int | None = None) -> list[psutil.Process]:
    """Processes of a home with a word in their command line, or at one place of it.

    They name the home there, or run in a folder of it, as a server and its models do.
    """
    processes = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        looked_at = words if place is None else words[place : place + 1]
        of_home = any(str(home) in word for word in (process.info["cwd"] or "", *words))
        if of_home and any(name in word for word in looked_at):
            processes.append(process)
    return processes
