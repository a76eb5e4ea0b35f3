"""Which process starts the server of a deployment, or keeps it running: the one with its lock.

The kernel drops the lock with its process, so there is no stale one; the file names the holder for
those who want it to stop, or wait for the server that it starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.private import private_folder

from .locks import close_lock, lock_at_once, open_lock
from .state import STATE, Identity, identify, peek_state, writable

LOCK = "supervisor.lock"


class Supervised(ServerError):
    """Another process starts the server, or keeps it running."""


@contextmanager
def supervising(name: str, *, lasting: bool = True) -> Iterator[None]:
    """Be the one process that starts a deployment's server, or keeps it running.

    Others wait for it while the server is down. They may ask a `lasting` one to end, and the server
    with it. Raises Supervised if another process holds the lock.
    """
    with writable(name):
        lock = open_lock(_lock(private_folder(paths.server_dir(name))))
    try:
        if not lock_at_once(lock):
            raise _supervised(name)
        holder = {**asdict(identify(os.getpid())), "lasting": lasting}
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(holder).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(lock, 0)
    finally:
        close_lock(lock)


def supervisor_of(name: str, *, lasting: bool = False) -> Identity | None:
    """The living process that starts a deployment's server or keeps it running, if there is one.

    With `lasting` only one whose end others may ask for.
    """
    try:
        said = json.loads(_lock(paths.server_dir(name)).read_text(encoding="utf-8"))
        holder = Identity(said["pid"], said["started_ticks"])
        if lasting and not said["lasting"]:
            return None
    except (OSError, ValueError, TypeError, KeyError):  # nobody has held it, or nobody does now
        return None
    return holder if holder.process() else None


def comes_back(name: str) -> bool:
    """Whether a deployment's server is down, and a living process starts it."""
    return supervisor_of(name) is not None and is_down(name)


def is_down(name: str) -> bool:
    """Whether no server of a deployment that was started here runs."""
    state = peek_state(paths.server_dir(name) / STATE)
    return state is None or state.server is None or state.server.process() is None


def _supervised(name: str) -> Supervised:
    holder = supervisor_of(name)
    who = f" (PID {holder.pid})" if holder else ""
    if is_down(name):
        return Supervised(
            f"Another process{who} is starting the server of {name} now.",
            hint="Wait until it is ready, or end that process.",
        )
    return Supervised(
        f"Deployment {name} is already served by another process{who}.",
        hint=f"Use its server, or stop it: tts serve {name} --stop",
    )


def _lock(folder: Path) -> Path:
    return folder / LOCK
