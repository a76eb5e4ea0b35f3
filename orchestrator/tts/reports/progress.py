"""Progress of long commands: a line or a bar on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from tts.build.spec import Role
from tts.lab.observer import Observer
from tts.lab.tuning.measure import ROUNDS
from tts.runs.run import Run
from tts.session.result import RunProgress

from .console import consoles, redraw_after_resize, say

if TYPE_CHECKING:
    from tts.serving.server.triton_log import Loading

PLAIN_INTERVAL_S = 10.0
"""Seconds between lines in a pipe."""
_TICK_S = 0.5


class ProgressLines:
    """What a command says while it works, within a `with` block: stages, and what it waits for.

    What it waits for is one line that is drawn anew on a terminal, and gone before the next stage.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        self._console = console or consoles()[1]
        self._waiting: Live | None = None
        self._told: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._waited()

    def say(self, line: str) -> None:
        """A stage begins."""
        self._waited()
        say(line, self._console)

    def loading(self, loading: Loading) -> None:
        """The engines load: `generator: compiling, verifier: reading weights 40% (12 s)`."""
        self._wait(f"{loading} ({loading.seconds:.0f} s)")

    def _wait(self, text: str) -> None:
        """Show what is waited for now."""
        if self._console.is_terminal:
            if self._waiting is None:
                self._waiting = Live(console=self._console, auto_refresh=False, transient=True)
                self._waiting.start()
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            self._waiting.update(line, refresh=True)
        else:
            self._now_and_then(text)

    def _now_and_then(self, text: str) -> None:
        """Say a line in a pipe, unless the last one was just now."""
        now = time.monotonic()
        if self._told is None:
            self._told = now
        elif now - self._told >= PLAIN_INTERVAL_S:
            self._told = now
            say(text, self._console)

    def _waited(self) -> None:
        """Nothing is waited for any more; may be repeated."""
        self._told = None
        if self._waiting:
            self._waiting.stop()
            self._waiting = None


class BuildLines(ProgressLines):
    """The stages of a build and for how long each has taken.

    A build computes in the thread that says its stages, so another one draws the time.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        super().__init__(console)
        self._stage, self._began = "", time.monotonic()
        self._drawing = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="tts build lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        super().__exit__(*error)

    def say(self, line: str) -> None:
        """A stage begins."""
        with self._drawing:
            super().say(line)
            self._stage, self._began = line, time.monotonic()

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._drawing:
                if self._stage:
                    self._wait(f"{self._stage} ({time.monotonic() - self._began:.0f} s)")


class _Bar(Progress):
    """Title, bar, count and time on a line; the state below it, where there is room for it."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        whole = Column(no_wrap=True)  # only title and bar give way on a narrow screen
        super().__init__(
            TextColumn("{task.description}", table_column=Column(overflow="fold")),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=whole),
            TimeElapsedColumn(table_column=whole),
            console=console,
            transient=True,
            expand=True,
        )
        self._size = console.size
        self._task = self.add_task(escape(title), total=total, state="")
        self.start()

    def get_renderables(self) -> Iterator[RenderableType]:
        """See Progress."""
        yield self.make_tasks_table(self.tasks)
        yield from (Text(task.fields["state"], style="dim") for task in self.tasks)

    def show(self, completed: int, state: str) -> None:
        self._size = redraw_after_resize(self.console, self, self._size)
        self.update(self._task, completed=completed, state=state)


class Bars(ProgressLines, Observer):
    """The terminal as an observer of a benchmark, a study or a tuning; see tts.lab.observer.

    Shows how far the engines have loaded, then a bar: problems solved, accuracy so far and the
    load, or an engine's measurements.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        super().__init__(console)
        self._run = RunProgress(0)
        self._title = self._unit = ""
        self._done = 0
        self._bar: _Bar | None = None
        self.runs: list[Run] = []
        """The runs that are complete."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.ended()

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer."""
        self._run = run
        self._begin(title, run.total)
        self._now_and_then("")  # the first line comes later

    def changed(self) -> None:
        """See Observer."""
        run = self._run
        generator, verifier = run.in_flight
        accuracy = f"accuracy {100 * run.right / run.judged:.0f}%  " if run.judged else ""
        state = f"{accuracy}in flight: generator {generator}, verifier {verifier}"
        if self._bar:
            self._bar.show(run.done, state)
        else:
            self._now_and_then(f"{self._title}: {run.done}/{run.total}  {state}")

    def ended(self) -> None:
        """See Observer."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def finished(self, run: Run) -> None:
        """See Observer."""
        self.runs.append(run)

    def measuring(self, role: Role, unit: str, measurements: int) -> None:
        """See Observer."""
        self._unit, self._done = unit, 0
        self._begin(role, measurements)

    def at(self, load: int, round_: int) -> None:
        """See Observer."""
        turn = f"round {round_} of {ROUNDS}" if round_ else "warm-up"
        self._done += 1
        if self._bar:
            self._bar.show(self._done, f"{load:,} {self._unit} in flight, {turn}")

    def _begin(self, title: str, total: int) -> None:
        self._waited()
        self.ended()
        self._title = title
        if self._console.is_terminal:
            self._bar = _Bar(self._console, title, total)
