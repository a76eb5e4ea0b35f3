"""One process at a time works on a run folder: the lock that it holds meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil

from tts.base.errors import RunError
from tts.base.input_files import Unreadable
from tts.base.user_paths import is_folder

from .files import make_folder, open_file, read_text
from .folder import writing

LOCK = ".lock"
_MOST_BYTES = 1000
"""Longest content of the lock's file that is read: it names a process."""
_HOLDER = re.compile(r"process (\d{1,9}) on (.+)")
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder to oneself; it is made if need be, and removed again if it stays empty.

    The kernel drops the lock when its process dies, however that comes. On NFS it holds between
    hosts too, if the mount passes locks on to its server; a file system without locks is used
    without one. Raises RunError naming the process that has the folder.
    """
    is_new = not is_folder(folder)
    with writing(folder):
        make_folder(folder)
        file = _locked_file(folder / LOCK)
    if file is None:
        raise _in_use(folder)
    with file:
        with suppress(OSError):  # on a full disk the folder is locked by somebody without a name
            file.truncate(0)
            name = f"process {os.getpid()} on {socket.gethostname()}"
            os.write(file.fileno(), name.encode())  # what a buffer kept would fail at the end
        try:
            yield
        finally:
            with suppress(OSError):  # a folder that was removed meanwhile, or is not empty
                (folder / LOCK).unlink()
                if is_new:
                    folder.rmdir()


def is_worked_on(folder: Path) -> bool:
    """Whether a process holds a run folder, as far as is visible without trying its lock.

    A process of another host cannot be checked, so it counts as alive.
    """
    try:
        holder = _HOLDER.fullmatch(read_text(folder / LOCK, _MOST_BYTES))
    except (OSError, Unreadable):
        return False
    if holder is None or holder[2] != socket.gethostname():
        return True
    return psutil.pid_exists(int(holder[1]))


def _locked_file(path: Path) -> BinaryIO | None:
    """The lock's file, locked; None if another process has it. Raises OSError."""
    while True:
        file = open_file(path, "ab")  # NFS grants an exclusive lock to writers only
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                file.close()
                raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                return file
        file.close()  # its last holder has just removed it: this lock would be nobody else's


def _in_use(folder: Path) -> RunError:
    holder = ""
    with suppress(OSError, Unreadable):
        holder = read_text(folder / LOCK, _MOST_BYTES)
    return RunError(
        f"The run folder {folder} is in use by {holder or 'another process'}.",
        hint="Wait until that has ended, or stop it with Ctrl-C there (or kill PID); it can be "
        "continued afterwards. Or name another folder.",
    )
