"""Files and folders that are still there after the power has failed.

A file's content is on disk once the file was synced, its name once its folder was.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tts.build.private import PRIVATE

_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)


def write_whole(file: Path, text: str) -> None:
    """Write a text so that a reader, and a machine that restarts, has the old or the new content.

    It is on disk when this returns. Raises OSError.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as content:
            content.write(text)
            content.flush()
            os.fsync(content.fileno())
        temporary.replace(file)
    except OSError:  # a full disk: what was written of it makes room again
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def write_copy(descriptor: int, file: Path) -> None:
    """Write what an open file holds, which may have lost its name, as `write_whole` does.

    Raises OSError.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with temporary.open("wb") as content:
        place = 0
        while part := os.pread(descriptor, 2**20, place):
            content.write(part)
            place += len(part)
        content.flush()
        os.fsync(content.fileno())
    temporary.replace(file)
    sync_folder(file.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, private, so that they are on disk; raises OSError."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(PRIVATE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)
