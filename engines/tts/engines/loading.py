"""The progress of an engine that loads, which the engine host writes to the server's log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

READING, COMPILING, OPEN = "reading weights", "compiling", "open"
_MARK = "tts loading: "
_EVERY_S = 0.5
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class Stage:
    """The present work on one model."""

    model: str
    doing: str
    fraction: float | None = None
    """The share that is done, 0 to 1; None where it cannot be known."""

    def line(self) -> str:
        """The line that the log has of it."""
        return _MARK + json.dumps(asdict(self))

    @staticmethod
    def parse(line: str) -> Stage | None:
        """The stage in a line of the log, if it tells one."""
        _, mark, text = line.partition(_MARK)
        try:
            return Stage(**json.loads(text)) if mark else None
        except (ValueError, TypeError):  # cut off: it is being written
            return None


def tell(stage: Stage) -> None:
    """Write a stage to the log, which is the stub's standard error."""
    print(stage.line(), file=sys.stderr, flush=True)  # noqa: T201


def read_weights(
    file: Path, say: Callable[[float], None], is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """Read a file of weights, so that opening the engine finds it in memory, and say how far.

    `say` gets the fraction that is read, twice a second; it ends when `is_wanted` says no.
    A file that cannot be read is ignored here; opening the engine reports it.
    """
    read_bytes, reported_at = 0, time.monotonic()
    buffer = bytearray(_CHUNK_BYTES)
    with suppress(OSError), file.open("rb", buffering=0) as weights:
        size = file.stat().st_size
        while is_wanted() and (count := weights.readinto(buffer)):
            read_bytes += count
            if time.monotonic() - reported_at >= _EVERY_S:
                reported_at = time.monotonic()
                say(min(1.0, read_bytes / max(1, size)))
