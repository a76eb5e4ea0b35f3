"""The iteration log: a JSON line per iteration of an engine, in a file of bounded size.

The engine's process writes it, any process of the machine can follow it. A file that has grown to
ROTATE_BYTES becomes FILE.1, replacing an earlier one, and a new file is begun; a restarted engine
appends.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

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
    """Reads the lines appended to an iteration log after this moment, by any process."""

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
        iterations: list[Statistics] = []
        while self._stream is not None or self._open():
            assert self._stream is not None
            *lines, self._half = (self._half + self._stream.read()).split(b"\n")
            for line in lines:
                try:
                    iterations.append(_decode(line))
                except ValueError:
                    continue
            if not self._was_rotated():
                break
            self.close()
        return iterations

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
        """Whether another file has taken the name; the open one has been read to its end."""
        assert self._stream is not None
        try:
            now, ours = self._file.stat(), self._stream.fileno()
        except FileNotFoundError:
            return False
        return not os.path.samestat(now, os.fstat(ours))


def rotated(file: Path) -> Path:
    """Where an iteration log's older part lies."""
    return file.with_name(f"{file.name}.1")


class StepRecorder:
    """Keeps the statistics of an engine: adds up totals, logs iterations, publishes at intervals.

    `publish` is called at most every `period_s` seconds, because it may cost more than a step. The
    log is flushed as often, and whenever the engine has nothing left to do.
    """

    def __init__(
        self, file: Path | None, period_s: float, publish: Callable[[Statistics], None]
    ) -> None:
        self.current = Statistics()
        self._totals = {"requests_total": 0, "input_tokens_total": 0, "output_tokens_total": 0}
        self._log = IterationLog(file)
        self._period_s = period_s
        self._publish = publish
        self._next = 0.0
        self._at_rest = True

    def count(self, *, requests: int = 0, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Add to the totals."""
        self._totals["requests_total"] += requests
        self._totals["input_tokens_total"] += input_tokens
        self._totals["output_tokens_total"] += output_tokens

    def record(self, **fields: Any) -> None:
        """Record one iteration; `fields` are those of Statistics that are not counted here."""
        now = time.monotonic()
        iteration = self.current.iteration + 1
        self.current = Statistics(iteration, time.time(), now, **fields, **self._totals)
        self._at_rest = False
        self._log.write(self.current)
        due = now >= self._next
        if due or not self.current.active:
            self._log.flush()
        if due:
            self._next = now + self._period_s
            self._publish(self.current)

    def rest_due_s(self) -> float | None:
        """Seconds until `rest` is due if the engine stays idle; None if it was called already."""
        return None if self._at_rest else max(0.0, self._next - time.monotonic())

    def rest(self, blocks_used: int) -> None:
        """The engine is idle: publish that nothing runs, and flush the log."""
        self._at_rest = True
        self._next = time.monotonic() + self._period_s
        idle = dict.fromkeys(_OF_AN_ITERATION, 0)
        self.current = replace(self.current, **idle, blocks_used=blocks_used, **self._totals)
        self._log.flush()
        self._publish(self.current)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


_OF_AN_ITERATION = (
    "active",
    "queued",
    "scheduled",
    "context_requests",
    "generation_requests",
    "context_tokens",
    "generated_tokens",
    "blocks_reserved",
)
