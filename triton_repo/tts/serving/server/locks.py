"""Locks between processes: files of a server's folder, locked by the kernel until a process ends.

A fork closes its copies: or it would hold what its parent has let go of. Each user of a shared
server holds a share of one lock, and the last one ends the server; the kernel takes the share of a
user that was killed. Once the process that has started a server is gone its guard looks at the same
lock (`command/guard.py`). The one process that starts a server, or keeps it running, holds another:
its file names the holder for those who want it to stop, or wait for the server that it starts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tts.base.errors import ServerError
from tts.base.user_paths import private_folder

from ..command import guard
from .service import Service
from .state import ProcessIdentity, identify, peek_state

_POLL_S = 0.02
_open: set[int] = set()


def open_lock(file: Path) -> int:
    """The descriptor of a lock's file, which is made if it is not there; nothing is locked yet."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    _open.add(lock)
    return lock


def close_lock(lock: int) -> None:
    """Let go of a lock; of a descriptor that this process does not have nothing is closed."""
    if lock in _open:
        _open.remove(lock)
        os.close(lock)


def lock_at_once(lock: int, *, shared: bool = False) -> bool:
    """Lock it if no other process holds it. If another does, a share that is held already is
    lost.
    """
    import fcntl  # not on Windows, where no tritonserver is found either

    if lock not in _open:  # the parent's
        return False
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ServerError(
            f"The files of a server cannot be locked: {error.strerror or error}.",
            hint="Its folder must be on a disk that knows locks; TTS_HOME names another one.",
        ) from error
    return True


def locked_after_a_stop(
    file: Path, *, shared: bool = False, check: Callable[[], None] = lambda: None
) -> int:
    """A lock that others hold no longer than it takes to stop a server.

    `check` may raise to end the wait. Raises ServerError if it takes longer.
    """
    lock = open_lock(file)
    deadline = time.monotonic() + guard.LONGEST_STOP_S
    try:
        while not lock_at_once(lock, shared=shared):
            check()
            if time.monotonic() > deadline:
                raise ServerError(
                    "The last server of this deployment has not ended for "
                    f"{guard.LONGEST_STOP_S:.0f} s.",
                    hint=f"A process holds the lock {file}: end it.",
                )
            time.sleep(_POLL_S)
    except BaseException:
        close_lock(lock)
        raise
    return lock


def take_share(folder: Path, check: Callable[[], None] = lambda: None) -> int:
    """Become a user of the server that keeps its files in `folder`.

    Waits while its last user, or its guard, stops it; `check` may raise to end the wait. Raises
    ServerError if that takes too long.
    """
    return locked_after_a_stop(folder / guard.USERS, shared=True, check=check)


@contextmanager
def give_back(share: int) -> Iterator[bool]:
    """End a use; whether it was the last one. Then no process can become a user within the
    block.
    """
    try:
        yield lock_at_once(share)
    finally:
        close_lock(share)


def _close_all() -> None:
    for lock in _open:
        os.close(lock)
    _open.clear()


os.register_at_fork(after_in_child=_close_all)


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
        hint=f"Use its server, or stop it: tts serve {service.deployment.argument} --stop",
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
