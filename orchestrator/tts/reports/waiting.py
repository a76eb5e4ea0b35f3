"""A line that names what a command is waiting for: engines that load, or are built."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .console import consoles, say

if TYPE_CHECKING:
    from tts.serving.server.loading import Loading

PLAIN_INTERVAL_S = 10.0
"""Seconds between lines in a pipe."""
_TICK_S = 0.5


def loading_line(loading: Loading) -> str:
    """`generator: compiling, verifier: reading weights 40% (12 s)`."""
    return f"{loading} ({loading.seconds:.0f} s)"


class WaitingLine:
    """One line that is drawn anew on a terminal; in a pipe a plain one every PLAIN_INTERVAL_S.

    Whoever shows it ends it, or the cursor stays hidden.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._said: float | None = None

    def show(self, text: str) -> None:
        """Show what is waited for now."""
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)
            return
        now = time.monotonic()
        if self._said is None:
            self._said = now
        elif now - self._said >= PLAIN_INTERVAL_S:
            self._said = now
            say(text, self._console)

    def end(self) -> None:
        """Nothing is waited for any more; may be repeated."""
        self._said = None
        if self._live:
            self._live.stop()
            self._live = None


class StartLines:
    """The lines of a command that starts a server, within a `with` block."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        self._console = console or consoles()[1]
        self._waiting = WaitingLine(self._console)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waiting.end()

    def say(self, line: str) -> None:
        """A stage begins."""
        self._waiting.end()
        say(line, self._console)

    def loading(self, loading: Loading) -> None:
        """The engines load."""
        self._waiting.show(loading_line(loading))


class BuildLines:
    """The stages of a build and for how long each has taken, within a `with` block.

    A build computes in the thread that says its stages, so another one draws the time.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        self._console = console or consoles()[1]
        self._waiting = WaitingLine(self._console)
        self._stage, self._began = "", time.monotonic()
        self._drawing = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="tts build lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._waiting.end()

    def say(self, line: str) -> None:
        """A stage begins."""
        with self._drawing:
            self._waiting.end()
            say(line, self._console)
            self._stage, self._began = line, time.monotonic()

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._drawing:
                if self._stage:
                    seconds = time.monotonic() - self._began
                    self._waiting.show(f"{self._stage} ({seconds:.0f} s)")
