"""The files of a run folder: opened with care, and written so that they outlast a power cut.

The folder may be somebody else's: no link in it is followed. Neither a file nor the folder that it
is in may be a symbolic link, nor a file that is written another name's; folders further above are
the user's own choice. Pipes and devices are refused, as they might never end.

A file's content is on disk once the file was synced, its name once its folder was.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

from tts.base.input_files import MAX_JSON_BYTES, as_text, read_open
from tts.base.user_paths import PRIVATE

Mode = Literal["rb", "r+b", "ab", "a+b", "xb"]

_FLAGS: Final[dict[Mode, int]] = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "a+b": os.O_RDWR | os.O_APPEND | os.O_CREAT,
    "xb": os.O_WRONLY | os.O_EXCL | os.O_CREAT,
}
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)
_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # to open a pipe waits for nobody


def open_file(file: Path, mode: Mode = "rb") -> BinaryIO:
    """Open a regular file; raises OSError, also for links."""
    with folder_of(file) as folder:
        try:
            descriptor = os.open(file.name, _FLAGS[mode] | _CAREFULLY, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _is_link(file) from error
            raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if mode != "rb" and status.st_nlink > 1:
            raise OSError(errno.EMLINK, f"{file} is a file elsewhere, too (a hard link): copy it")
        return cast(BinaryIO, os.fdopen(descriptor, mode.replace("x", "w")))
    except BaseException:
        os.close(descriptor)
        raise


def read_text(file: Path, most: int = MAX_JSON_BYTES) -> str:
    """The text of a file; raises OSError and, as `tts.base.input_files`, Unreadable."""
    with open_file(file) as stream:
        return as_text(read_open(stream, most))


@contextmanager
def folder_of(file: Path) -> Iterator[int]:
    """A descriptor of the folder that a file is in; raises OSError if that is a link."""
    try:
        folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        refuse_link(file.parent)
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def refuse_link(path: Path) -> None:
    """Raise OSError if a path is a symbolic link."""
    if path.is_symlink():
        raise _is_link(path)


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, f"{path} is a symbolic link, and none is followed")


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends, on disk; it stays as it is if that fails.

    A reader, and a machine that restarts, has the old or the new content. Raises OSError.
    """
    if not file.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with folder_of(file) as folder:
        with suppress(FileNotFoundError):
            mode = os.stat(file.name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise _is_link(file)
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # os.replace refuses a folder
                raise OSError(errno.EINVAL, "it is not a regular file")
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
