"""Progress of long commands: a bar on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from tts.build.spec import Role
from tts.lab.observer import Observer
from tts.lab.tuning.analysis import UNITS
from tts.lab.tuning.measure import ROUNDS
from tts.session.result import RunProgress

from .console import redraw_after_resize
from .waiting import PLAIN_INTERVAL_S, StartLines


class _TwoLines(Progress):
    """Title, bar, count and time on a line; the state below it, where there is room for it."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """See Progress."""
        yield self.make_tasks_table(self.tasks)
        yield from (Text(task.fields["state"], style="dim") for task in self.tasks)


class _Bar:
    """A bar on a terminal, with a title before it, a count beside it and a state below it."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._size = console.size
        whole = Column(no_wrap=True)  # only title and bar give way on a narrow screen
        self._progress = _TwoLines(
            TextColumn("{task.description}", table_column=Column(overflow="fold")),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=whole),
            TimeElapsedColumn(table_column=whole),
            console=console,
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task(escape(title), total=total, state="")
        self._progress.start()

    def show(self, completed: int, state: str = "") -> None:
        self._size = redraw_after_resize(self._console, self._progress, self._size)
        self._progress.update(self._task, completed=completed, state=state)

    def end(self) -> None:
        self._progress.stop()


class BenchProgress(StartLines, Observer):
    """The terminal as an observer of a benchmark; see tts.lab.observer.

    Shows how far the engines have loaded, then problems solved, accuracy so far and their load.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        super().__init__(console)
        self._run = RunProgress(0)
        self._title = ""
        self._bar: _Bar | None = None
        self._said = 0.0

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer."""
        self._waiting.end()
        self._run, self._title = run, title
        self._said = time.monotonic()
        if self._console.is_terminal:
            self._bar = _Bar(self._console, title, run.total)

    def changed(self) -> None:
        """See Observer."""
        run = self._run
        generator, verifier = run.in_flight
        accuracy = f"{100 * run.right / run.judged:.0f}%" if run.judged else "-"
        state = f"accuracy {accuracy}  in flight: generator {generator}, verifier {verifier}"
        if self._bar:
            self._bar.show(run.done, state)
        elif time.monotonic() - self._said >= PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            self.say(f"{self._title}: {run.done}/{run.total}  {state}")

    def ended(self) -> None:
        """See Observer."""
        if self._bar:
            self._bar.end()
            self._bar = None


class TuneProgress(StartLines, Observer):
    """The terminal as an observer of a tuning, within a `with` block (tts.lab.observer)."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        super().__init__(console)
        self._run = RunProgress(0)
        self._bar: _Bar | None = None
        self._done = 0
        self._unit = ""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._end()

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer."""
        self._run = run
        self._begin(title, run.total)

    def changed(self) -> None:
        """See Observer."""
        if self._bar:
            self._bar.show(self._run.done)

    def ended(self) -> None:
        """See Observer."""
        self._end()

    def measuring(self, role: Role, measurements: int) -> None:
        """See Observer."""
        self._unit = UNITS[role]
        self._begin(role, measurements)

    def at(self, load: int, round_: int) -> None:
        """See Observer."""
        turn = f"round {round_} of {ROUNDS}" if round_ else "warm-up"
        self._advance(f"{load:,} {self._unit} in flight, {turn}")

    def _begin(self, title: str, total: int) -> None:
        self._waiting.end()
        self._end()
        self._done = 0
        if self._console.is_terminal:
            self._bar = _Bar(self._console, title, total)

    def _advance(self, state: str) -> None:
        self._done += 1
        if self._bar:
            self._bar.show(self._done, state)

    def _end(self) -> None:
        if self._bar:
            self._bar.end()
            self._bar = None
