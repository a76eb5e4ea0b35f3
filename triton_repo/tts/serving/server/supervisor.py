"""Who keeps the server of a deployment running: the one process that holds its lock.

The kernel drops the lock with its process, so there is no stale one; the file names the holder for
those who want it to stop, or wait for the server that it starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import getpid
from pathlib import Path

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.private import private_folder

from .state import STATE, Identity, identify, peek_state, writable

LOCK = "supervisor.lock"


@contextmanager
def supervising(name: str) -> Iterator[None]:
    """Be the process that keeps a deployment's server running; ServerError if another one does."""
    import fcntl  # not on Windows, where no tritonserver is found either

    with writable(name):
        lock = _lock(private_folder(paths.server_dir(name))).open("a+", encoding="utf-8")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = supervisor_of(name)
            raise ServerError(
                f"Deployment {name} is already served by another tts serve"
                f"{f' (PID {holder.pid})' if holder else ''}.",
                hint=f"Use its server, or stop it: tts serve {name} --stop",
            ) from None
        lock.truncate(0)
        lock.write(json.dumps(asdict(identify(getpid()))))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def supervisor_of(name: str) -> Identity | None:
    """The living process that keeps a deployment's server running, if there is one."""
    try:
        holder = Identity(**json.loads(_lock(paths.server_dir(name)).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # nobody has held it, or nobody does now
        return None
    return holder if holder.process() else None


def comes_back(name: str) -> bool:
    """Whether a deployment's server is down, and a living process starts it again."""
    return supervisor_of(name) is not None and is_down(name)


def is_down(name: str) -> bool:
    """Whether no server of a deployment that was started here runs."""
    state = peek_state(paths.server_dir(name) / STATE)
    return state is None or state.server is None or state.server.process() is None


def _lock(folder: Path) -> Path:
    return folder / LOCK
