"""Files and folders that are still there after the power has failed.

A file's content is on disk once the file was synced, its name once its folder was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tts.build.private import PRIVATE

from .files import folder_of, open_file

_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends, on disk; it stays as it is if that fails.

    A reader, and a machine that restarts, has the old or the new content. Raises OSError.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with folder_of(file) as folder:
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(temporary.name, dir_fd=folder)
        try:
            with open_file(temporary, "xb") as content:
                yield content
                content.flush()
                os.fsync(content.fileno())
            os.replace(temporary.name, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:  # a full disk: what was written of it makes room again
            with suppress(FileNotFoundError):
                os.unlink(temporary.name, dir_fd=folder)
            raise
    sync_folder(file.parent)


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file as `replacing` does; raises OSError."""
    with replacing(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def write_copy(descriptor: int, file: Path) -> None:
    """Write what an open file holds, which may have lost its name, as `replacing` does.

    Raises OSError.
    """
    with replacing(file) as content:
        place = 0
        while part := os.pread(descriptor, 2**20, place):
            content.write(part)
            place += len(part)


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
