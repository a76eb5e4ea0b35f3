"""A run while it goes on, drawn on a terminal of any size, or as a line now and then in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tts.build import paths
from tts.compat import Self
from tts.runs.going_on import newest_unfinished
from tts.runs.records import ENGINES
from tts.session.progress import RunProgress

from .console import consoles, redraw_after_resize
from .live_run import WINDOW_S, LiveNumbers, LiveRun, SolvedProblem, State
from .progress import BenchProgress
from .sheet import sparkline

PLAIN_INTERVAL_S = 5.0
"""Seconds between lines in a pipe."""
STALLED_S = 30.0
"""A running run whose log does not grow is marked as such."""
_STYLE = {
    State.STARTING: "dim",
    State.READING: "dim",
    State.RUNNING: "green",
    State.INTERRUPTED: "yellow",
    State.FINISHED: "bold green",
}


class RunScreen:
    """Shows a run within a `with` block: drawn anew on a terminal, else plain lines."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds; nothing else measures time here."""
        self._console = console
        self._clock = clock
        self._draws = console.is_terminal and not console.is_dumb_terminal
        self._run: LiveRun | None = None
        self._live: Live | None = None
        self._size = console.size
        self._new = self._said = clock()
        self._line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def show(self, run: LiveRun, new: bool) -> None:
        """Show a run as it is now; `new`: its log has grown since it was shown."""
        now = self._clock()
        if new:
            self._new = now
        self._run = run
        if self._draws:
            if self._live is None:
                self._size = self._console.size
                self._live = Live(
                    get_renderable=self._drawn,
                    console=self._console,
                    auto_refresh=False,
                    transient=True,
                )
                self._live.start()
            self._size = redraw_after_resize(self._console, self._live, self._size)
            self._live.refresh()
        elif now - self._said >= PLAIN_INTERVAL_S:
            self._said = now
            self.say_line(run)

    def say_line(self, run: LiveRun) -> None:
        """Print how far a run is as one plain line, unless the last one said the same."""
        line = run_line(run)
        if line != self._line:
            self._line = line
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Erase what was drawn; may be repeated."""
        if self._live:
            self._live.stop()
            self._live = None

    def _drawn(self) -> RenderableType:
        assert self._run is not None  # it is shown first
        return run_panel(
            self._run, self._console.width, self._console.height, self._clock() - self._new
        )


def run_line(run: LiveRun) -> str:
    """A run in one line, such as `runs/a: running, 57/100, accuracy 61% (48-73%), ...`."""
    numbers = run.numbers
    if numbers is None:
        return f"{run.run}: {', '.join([run.state.value, *_notes(run, 0.0)])}"
    parts = [f"{run.state.value}, {numbers.done}/{numbers.total}", _accuracy(numbers)]
    if run.state is State.RUNNING:
        parts += [
            f"{engine} {_load(numbers.in_flight(engine))} in flight, "
            f"{numbers.tokens_per_s(engine):,.0f} tokens/s"
            for engine in ENGINES
        ]
        if (hit_rate := numbers.speculation.hit_rate) is not None:
            parts.append(f"speculation {hit_rate:.0%} used")
        if (left := numbers.left_s) is not None:
            parts.append(f"about {duration(left)} left")
    else:
        parts += [f"{numbers.generated_tokens:,} tokens", duration(numbers.wall_s)]
    return f"{run.run}: {', '.join(parts + _notes(run, 0.0))}"


def run_panel(run: LiveRun, width: int, height: int, silent_s: float = 0.0) -> RenderableType:
    """A run on a screen of this size; `silent_s`: seconds since its log has grown."""
    numbers = run.numbers
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right")
    state = Text(run.state.value, style=_STYLE[run.state])
    head.add_row(Text(str(run.run), style="bold"), state)
    parts: list[RenderableType] = [head]
    if config := run.config:
        what = f"{config.strategy} n={config.parameters.get('n')}, {config.schedule}"
        parts.append(_one_line(f"{config.deployment}, {config.dataset}: {what}", "dim"))
    if numbers:
        goes_on = run.state is State.RUNNING
        parts += [_progress(numbers, goes_on), _engines(numbers, width), _speculation(numbers)]
    parts += [_one_line(note, "yellow") for note in _notes(run, silent_s)]
    room = height - len(parts) - len(ENGINES) - 2  # parts of several lines, and the cursor's
    if numbers and numbers.recent and room > 1:
        newest = list(numbers.recent)[-(room - 1) :][::-1]
        parts += [_one_line("Solved last", "dim"), _recent(newest, levels=width >= 100)]
    return Group(*parts)


def duration(seconds: float) -> str:
    """`7 s`, `2:05` (minutes), `3:02:05` (hours)."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _progress(numbers: LiveNumbers, goes_on: bool) -> RenderableType:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    for _ in range(2):
        line.add_column(no_wrap=True)
    left = numbers.left_s if goes_on else None
    line.add_row(
        ProgressBar(total=max(numbers.total, 1), completed=numbers.done),
        f"{numbers.done}/{numbers.total}",
        duration(numbers.wall_s) if left is None else f"about {duration(left)} left",
    )
    running = f", {numbers.running} running" if numbers.running and goes_on else ""
    tokens = f", {numbers.generated_tokens:,} tokens"
    return Group(line, _one_line(f"{_accuracy(numbers)}{running}{tokens}"))


def _engines(numbers: LiveNumbers, width: int) -> RenderableType:
    table = Table(box=None, expand=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"last {WINDOW_S} s", no_wrap=True)
    for name in ("in flight", "busy", "tokens/s"):
        table.add_column(name, no_wrap=True, justify="right")
    seconds = min(WINDOW_S, width - 50)
    if seconds > 4:
        table.add_column("in flight, by second", no_wrap=True)
    for engine in ENGINES:
        busy = numbers.busy(engine)
        row = [
            engine,
            _load(numbers.in_flight(engine)),
            "-" if busy is None else f"{busy:.0%}",
            f"{numbers.tokens_per_s(engine):,.0f}",
        ]
        if seconds > 4:
            row.append(sparkline(numbers.in_flight_by_second(engine, seconds)))
        table.add_row(*row)
    return table


def _speculation(numbers: LiveNumbers) -> RenderableType:
    ahead = numbers.speculation
    if ahead.hit_rate is None:
        return _one_line("speculation  none sent")
    cancelled = ahead.cancelled.total()
    return _one_line(
        f"speculation  {ahead.hit_rate:.0%} used ({ahead.used:,} of {ahead.sent:,} sent, "
        f"{cancelled:,} cancelled)"
    )


def _recent(problems: list[SolvedProblem], levels: bool) -> RenderableType:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    for ratio in (3, 2):
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    for _ in range(2):
        table.add_column(no_wrap=True, justify="right")
    for problem in problems:
        table.add_row(
            _verdict(problem.correct),
            Text(_printable(problem.id + (f", level {problem.level}" if levels else ""))),
            Text("-" if problem.answer is None else _printable(problem.answer)),
            f"{problem.tokens:,} tokens",
            "" if problem.seconds is None else f"{problem.seconds:.1f} s",
        )
    return table


def _verdict(correct: bool | None) -> Text:
    if correct is None:
        return Text("-", style="dim")
    return Text("right", style="green") if correct else Text("wrong", style="red")


def _accuracy(numbers: LiveNumbers) -> str:
    if (accuracy := numbers.accuracy) is None:
        return "accuracy -"
    share, low, high = accuracy
    return f"accuracy {share:.0%} ({low:.0%} to {high:.0%})"


def _load(in_flight: float | None) -> str:
    return "-" if in_flight is None else f"{in_flight:.1f}"


def _notes(run: LiveRun, silent_s: float) -> list[str]:
    """Notes for the viewer, with remedies."""
    notes = []
    if run.problem:
        notes.append(run.problem)
    if run.damaged:
        notes.append(f"damaged lines of the log, left out: {run.damaged}")
    if run.state is State.INTERRUPTED:
        notes.append(f"continue it with: tts bench --resume {run.named}")
    elif run.state is State.RUNNING and silent_s >= STALLED_S:
        notes.append(f"nothing new in its log for {duration(silent_s)}")
    return notes


def _printable(text: str) -> str:
    """Model text in a line: without control characters, which could move the cursor."""
    return "".join(c if c.isprintable() else " " for c in text[:200])


def _one_line(text: str, style: str = "") -> Text:
    return Text(_printable(text), style=style, no_wrap=True, overflow="ellipsis")


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
    """`tts bench --watch`: this process's own run, as `tts runs watch` shows others."""

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
