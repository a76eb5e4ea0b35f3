"""`tts report RUN --follow`: the page of a run that goes on, written anew every few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tts.build.errors import RunError
from tts.runs.lock import is_worked_on

from .of_runs import report_of

EVERY_S = 5.0
"""Seconds between two pages, at least."""
_REST = 4.0
"""And so many times what the last one took: pages take a fifth of a core at most."""


def follow(folder: Path) -> Iterator[Path | RunError]:
    """Write the page of a run while a process works on it: each page, or why there is none yet."""
    while is_worked_on(folder):
        began = time.monotonic()
        try:
            yield report_of([folder]).write()
        except RunError as error:  # it has not begun, or its files are being replaced
            yield error
        time.sleep(max(EVERY_S, _REST * (time.monotonic() - began)))
