"""Following a log that is being written, by this process or another: incrementally, no locks.

Only whole lines count. A resumed run cuts off a half-written last one, which was not read yet; a
log that was repaired or begun anew is read from its start again, which `Restarted` says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tts.build.errors import RunError

from .checksums import Chain, open_regular
from .events import AnyEvent
from .folder import EVENTS
from .log import Damage, read_line

_REMEMBERED = 64
"""Bytes before the place read up to: if they differ, the log is another one."""


@dataclass(frozen=True)
class Restarted:
    """The log is not the one that was read before: what follows begins at its first line."""


class Follower:
    """A log's place up to which it was read; its memory does not grow with the log."""

    def __init__(self, folder: Path) -> None:
        """Nothing is opened yet, and the log need not be there yet."""
        self._file = folder / EVENTS
        self._place = 0
        """Behind the last line that was read."""
        self._number = 0
        """Of that line."""
        self._before = b""
        """What stands before that place."""
        self._identity = (0, 0)
        self._chain = Chain()

    def read(self) -> Iterator[AnyEvent | Damage | Restarted]:
        """What was added to the log since it was last read, oldest first.

        May be left early: the next call goes on from there. Raises RunError for a log of a newer
        version, or one that cannot be read.
        """
        try:
            with open_regular(self._file) as log:
                if not self._goes_on(log):
                    self._forget()
                    yield Restarted()
                log.seek(self._place)
                while (line := log.readline()).endswith(b"\n"):
                    self._identity = _identity(log)
                    self._place += len(line)
                    self._number += 1
                    self._before = (self._before + line)[-_REMEMBERED:]
                    yield read_line(line, self._file, self._number, self._chain)
        except FileNotFoundError:
            if self._place:
                self._forget()
                yield Restarted()
        except OSError as error:
            raise RunError(f"{self._file} cannot be read: {error.strerror or error}") from error

    def _goes_on(self, log: BinaryIO) -> bool:
        """Whether this is the log that was read so far, perhaps with more behind that."""
        if self._place == 0:
            return True
        if _identity(log) != self._identity:
            return False
        log.seek(self._place - len(self._before))
        before: bytes = log.read(len(self._before))
        return before == self._before

    def _forget(self) -> None:
        self._place = self._number = 0
        self._before = b""
        self._identity = (0, 0)
        self._chain = Chain()


def _identity(log: BinaryIO) -> tuple[int, int]:
    status = os.fstat(log.fileno())
    return status.st_dev, status.st_ino
