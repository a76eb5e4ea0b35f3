"""Opening the files of a run folder, which may be somebody else's: no link in it is followed.

Neither a file nor the folder that it is in may be a symbolic link, nor a file that is written
another name's; folders further above are the user's own choice. Pipes and devices are refused, as
they might never end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

from tts.build.input_files import MAX_JSON_BYTES, as_text, read_open

Mode = Literal["rb", "r+b", "ab", "a+b", "xb"]

_FLAGS: Final[dict[Mode, int]] = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "a+b": os.O_RDWR | os.O_APPEND | os.O_CREAT,
    "xb": os.O_WRONLY | os.O_EXCL | os.O_CREAT,
}
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
    """The text of a file; raises OSError and, as `tts.build.input_files`, Unreadable."""
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
    return OSError(
        errno.ELOOP, f"{path} is a symbolic link, and none is followed within a folder of runs"
    )
