"""The one process that starts a server, or keeps it running.

It holds a lock. The kernel drops it with its process, so there is no stale one; the file names the
holder for those who want it to stop, or wait for the server that it starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tts.base.errors import ServerError
from tts.base.private import private_folder

from .locks import close_lock, lock_at_once, open_lock
from .service import Service
from .state import ProcessIdentity, identify, peek_state


class Supervised(ServerError):
    """Another process starts the server, or keeps it running."""


@contextmanager
def supervising(service: Service, *, lasting: bool = True) -> Iterator[None]:
    """Be the one process that starts a server, or keeps it running.

    Others wait for it while the server is down. They may ask a `lasting` one to end, and the server
    with it. Raises Supervised if another process holds the lock.
    """
    with writable(service):
        private_folder(service.folder.parent)
        lock = open_lock(_supervisor_lock(private_folder(service.folder)))
    try:
        if not lock_at_once(lock):
            raise _supervised(service)
        holder = {**asdict(identify(os.getpid())), "lasting": lasting}
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(holder).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(lock, 0)
    finally:
        close_lock(lock)


def supervisor_of(service: Service, *, lasting: bool = False) -> ProcessIdentity | None:
    """The living process that starts a server or keeps it running, if there is one.

    With `lasting` only one whose end others may ask for.
    """
    try:
        record = json.loads(_supervisor_lock(service.folder).read_text(encoding="utf-8"))
        holder = ProcessIdentity(record["pid"], record["started_ticks"])
        if lasting and not record["lasting"]:
            return None
    except (OSError, ValueError, TypeError, KeyError):  # nobody has held it, or nobody does now
        return None
    return holder if holder.process() else None


def comes_back(service: Service) -> bool:
    """Whether a server is down, and a living process starts it."""
    return supervisor_of(service) is not None and is_down(service)


def is_down(service: Service) -> bool:
    """Whether no server that was started here for this service runs."""
    state = peek_state(service.state_file)
    return state is None or state.server is None or state.server.process() is None


def _supervised(service: Service) -> Supervised:
    name = service.deployment.name
    holder = supervisor_of(service)
    who = f" (PID {holder.pid})" if holder else ""
    if is_down(service):
        return Supervised(
            f"Another process{who} is starting the {service.title} of {name} now.",
            hint="Wait until it is ready, or end that process.",
        )
    return Supervised(
        f"Deployment {name} is already served by another process{who}.",
        hint=f"Use its server, or stop it: tts serve {name} --stop",
    )


def _supervisor_lock(folder: Path) -> Path:
    return folder / "supervisor.lock"


@contextmanager
def writable(service: Service) -> Iterator[None]:
    """A disk that refuses a server's files is a ServerError that says which file and why."""
    try:
        yield
    except OSError as error:
        raise ServerError(
            f"The files of the {service.title} of {service.deployment.name} cannot be written: "
            f"{error.filename or service.folder}: {error.strerror or error}.",
            hint="Free some space or fix the permissions, or let TTS_HOME name another folder.",
        ) from error
