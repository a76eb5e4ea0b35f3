"""The report of a run that goes on, written anew as its log grows, each time into a new folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tts.build.errors import RunError

from .figures.run import run_figures
from .live_run import LiveRun, State
from .live_screen import run_line
from .page import FILE, write_page
from .page.facts import facts_of

EVERY_S = 5.0
"""Seconds between two pages, at least."""
_REST = 4.0
"""And so many times what the last one took: writing pages costs a fifth of a core at most."""
_KEPT = 2
"""Pages that are kept: whoever looks at the last but one may still open its trees."""


class LivePage:
    """Pages of a run, numbered from 1, each with its files in a folder of its own."""

    def __init__(
        self, folder: Path, pages: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Of the run in `folder`; `pages` is an empty folder. Raises RunError."""
        self._run = LiveRun(folder)
        self._pages = pages
        self._clock = clock
        self._next = clock()
        self._behind = True
        self.number = 0
        """Of the newest page; 0 before the first."""
        self.line = ""
        """How far the run is."""
        self.problem: str | None = None
        """Why there is no newer page, if it could not be written."""

    @property
    def state(self) -> State:
        """What is known of the run."""
        return self._run.state

    def look(self) -> None:
        """Read on in the log, and write a page if it is behind and it is time for one."""
        before = self.state
        self._behind |= self._run.read() or self.state is not before
        self.line = run_line(self._run)
        if self.state is State.READING or not (self._behind and self._clock() >= self._next):
            return
        began = self._clock()
        try:
            if self._run.numbers:
                self._write(self._run.run)
            self.problem = None
        except RunError as error:
            self.problem = error.message
        ended = self._clock()
        self._next = ended + max(EVERY_S, _REST * (ended - began))

    def file(self, number: int, name: str) -> Path:
        """A file of a page; it may be gone by now."""
        return self._pages / str(number) / name

    def _write(self, run: Path) -> None:
        folder = self._pages / str(self.number + 1)
        folder.mkdir(exist_ok=True)
        title = f"{run.resolve().name}: {self.state.value}"
        write_page(folder / FILE, title, facts_of([run]), run_figures(run), [run], lead=self.line)
        self._behind = False
        self.number += 1
        shutil.rmtree(self._pages / str(self.number - _KEPT), ignore_errors=True)
