"""Locks between processes: files of a server's folder, locked by the kernel until a process ends.

A fork closes its copies: or it would hold what its parent has let go of. Each user of a shared
server holds a share of one lock, and the last one ends the server; the kernel takes the share of a
user that was killed. Once the process that has started a server is gone its guard looks at the same
lock (`command/guard.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tts.base.errors import ServerError

from ..command import guard

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
