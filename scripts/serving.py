"""Processes that serve HTTP on this machine, for as long as a block lasts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def serving(
    words: Sequence[str | Path],
    port: int,
    log: Path,
    *,
    start_s: float = 60.0,
    variables: Mapping[str, str] | None = None,
    path: str = "/health",
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, as soon as it answers at `path`; what it says is logged.

    Ends the program, with the end of the log, if it does not start.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,  # llama.cpp's server ends where there is none
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(variables or {})},
        )
    try:
        deadline = time.monotonic() + start_s
        while not _answers(port, path):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{words[2:]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: it may be halted, and has time to stop in order."""
    for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if number != signal.SIGCONT:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
                return


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
