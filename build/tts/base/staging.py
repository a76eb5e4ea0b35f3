"""One builder at a time, and folders that appear complete or not at all.

A folder `x` is made as `.x.new`; then `x` becomes `.x.old`, `.x.new` becomes `x`, `.x.old` goes.
A crash leaves one of these steps undone, and `recover` finishes or undoes it on the next run.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import BuildError


@contextmanager
def build_lock(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the build lock of `folder`; if another builder has it, say so and wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".build.lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"Waiting for another build in {folder} (process {file.read() or 'unknown'}).")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder that replaces `folder` when the block succeeds, and is removed if not."""
    new, old = _new(folder), _old(folder)
    recover(folder)
    new.mkdir()
    try:
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        recover(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Bring `folder` back to its last complete state and remove what a killed build left."""
    new, old = _new(folder), _old(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    for leftover in (new, old):
        if leftover.exists():
            shutil.rmtree(leftover)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into a BuildError that says what is wrong with the disk."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BuildError(
                f"The disk that holds {folder} is full.",
                hint="Free some space, or set TTS_HOME to a folder on a larger disk.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise BuildError(
                f"There is no permission to write {error.filename or folder}.",
                hint="Set TTS_HOME to a folder that you may write.",
            ) from error
        raise BuildError(
            f"Cannot write engines to {folder}: {error}",
            hint="Check the disk, or set TTS_HOME to another folder.",
        ) from error


def _new(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.new")


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")
