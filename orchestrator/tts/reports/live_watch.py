"""Watching runs: one of another process until it ends, or this process's own while it goes on."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from tts.build import paths
from tts.runs.going_on import newest_unfinished
from tts.session.progress import RunProgress

from .console import consoles
from .live_run import LiveRun, State
from .live_screen import RunScreen
from .progress import BenchProgress

TICK_S = 0.5
"""How often a log is looked at, and the screen drawn."""


def watch_run(folder: Path | None, console: Console | None = None) -> None:
    """Show a run of another process until it has finished; None: the newest unfinished one.

    Nothing of it is changed. A run that is interrupted is waited for on a terminal, where it may be
    resumed; in a pipe its state is the last line. Ctrl-C ends the watching. Raises RunError if
    there is no such run.
    """
    console = console or consoles()[0]
    run = LiveRun(folder or newest_unfinished(paths.runs_dir()))
    waits = console.is_terminal
    try:
        with RunScreen(console) as screen:
            while True:
                new = run.read()
                if run.state is State.FINISHED:
                    break
                if run.state is State.INTERRUPTED and not waits:
                    break
                screen.show(run, new)
                if run.state is not State.READING:
                    time.sleep(TICK_S)
    except KeyboardInterrupt:
        pass  # whoever watches has seen enough: the run goes on
    RunScreen(console).say_line(run)


class WatchedBench(BenchProgress):
    """`tts bench --watch`: the run that this process carries out, as `tts top` shows another's."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        super().__init__(console)
        self._watched: LiveRun | None = None
        self._screen: RunScreen | None = None
        self._looked = 0.0

    def began(self, run: RunProgress, title: str, folder: Path) -> None:
        """See Observer."""
        self._waiting.end()
        self._watched = LiveRun(folder)
        self._screen = RunScreen(self._console, time.monotonic)

    def changed(self) -> None:
        """See Observer."""
        now = time.monotonic()
        if self._watched and self._screen and now - self._looked >= TICK_S:
            self._looked = now
            self._screen.show(self._watched, self._watched.read())

    def ended(self) -> None:
        """See Observer."""
        if self._screen:
            self._screen.end()
        self._watched = self._screen = None
