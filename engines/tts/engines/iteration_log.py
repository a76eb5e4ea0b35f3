"""The iteration log: a JSON line per iteration of an engine, in a file of bounded size.

The engine's process writes it, any process of the machine can follow it. A file that has grown to
ROTATE_BYTES becomes FILE.1, in the place of the one before, and a new one is begun; a restarted
engine appends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

import msgspec

from .statistics import Statistics

logger = logging.getLogger(__name__)

ROTATE_BYTES = 32 << 20
_FLUSH_EVERY = 256  # records
_NAMES = [field.name for field in fields(Statistics)]
# three times as fast as json.dumps(asdict(...)), and the engine waits for it in every iteration
_LINE = "{" + ", ".join(f'"{name}": %r' for name in _NAMES) + "}\n"
_values = attrgetter(*_NAMES)
_decode = msgspec.json.Decoder(Statistics).decode


class IterationLog:
    """Appends iterations, buffered; with None as the file, no log.

    A disk that refuses ends the log and nothing else: the engine goes on without it.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._stream: BinaryIO | None = None
        self._lines: list[str] = []
        if file is not None:
            self._guarded(self._open)

    def write(self, statistics: Statistics) -> None:
        """Add one iteration."""
        if self._stream is not None:
            self._lines.append(_LINE % _values(statistics))
            if len(self._lines) >= _FLUSH_EVERY:
                self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._lines:
            self._guarded(self._flush)
            self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._stream is not None:
            self._guarded(self._stream.close)
            self._stream = None

    def _open(self) -> None:
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._file.open("ab")

    def _flush(self) -> None:
        assert self._stream is not None
        assert self._file is not None
        self._stream.write("".join(self._lines).encode())
        self._stream.flush()
        if self._stream.tell() >= ROTATE_BYTES:
            self._stream.close()
            self._file.replace(rotated(self._file))
            self._open()

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            logger.warning("the iteration log %s ends here: %s", self._file, error)
            if self._stream is not None:
                with suppress(OSError):
                    self._stream.close()
            self._stream = None


class IterationLogFollower:
    """Reads what is appended to an iteration log from now on, whoever writes it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: BinaryIO | None = None
        self._half = b""  # a line whose end is not written yet
        if self._open():
            assert self._stream is not None
            self._stream.seek(0, os.SEEK_END)

    def read(self) -> list[Statistics]:
        """The iterations that were written since the last call, oldest first; raises OSError.

        A line that a killed engine has not ended is left out.
        """
        found: list[Statistics] = []
        while self._stream is not None or self._open():
            assert self._stream is not None
            *lines, self._half = (self._half + self._stream.read()).split(b"\n")
            for line in lines:
                try:
                    found.append(_decode(line))
                except ValueError:
                    continue
            if not self._was_rotated():
                break
            self.close()
        return found

    def close(self) -> None:
        """Close the file; `read` opens it again, from its beginning."""
        if self._stream is not None:
            self._stream.close()
            self._stream, self._half = None, b""

    def _open(self) -> bool:
        try:
            self._stream = self._file.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _was_rotated(self) -> bool:
        """Whether another file has taken the name; what was open has been read to its end."""
        assert self._stream is not None
        try:
            now, ours = self._file.stat(), self._stream.fileno()
        except FileNotFoundError:
            return False
        return not os.path.samestat(now, os.fstat(ours))


def rotated(file: Path) -> Path:
    """Where an iteration log's older part lies."""
    return file.with_name(f"{file.name}.1")
