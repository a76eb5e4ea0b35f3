"""The consoles of commands, and tables that are never cut.

Stdout holds results only; what commands say while they work goes to stderr.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.progress import Progress
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tts.base.shown_text import printable

_quiet = False


def silence() -> None:
    """Print results only from now on: what goes to `say` and to progress is dropped."""
    global _quiet
    _quiet = True


class _Console(Console):
    """Shows texts, which may be anybody's, without their control characters."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See Console."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=printable(segment.text))


def consoles() -> tuple[Console, Console]:
    """The console for results (stdout) and the one for everything else (stderr)."""
    out = _Console(highlight=False)
    if not out.is_terminal:
        out.width = 140  # a pipe has no width; a table must not be squeezed into 80 columns
    return out, _Console(stderr=True, highlight=False, quiet=_quiet)


def say(text: str, console: Console | None = None) -> None:
    """Print one line of progress; on `console` if something is being drawn on it."""
    (console or consoles()[1]).print(text, style="dim", markup=False, soft_wrap=True)


def redraw_after_resize(
    console: Console, drawing: Live | Progress, before: ConsoleDimensions
) -> ConsoleDimensions:
    """Clear the screen if it is of another size than `before`, and its size now.

    The terminal has wrapped the drawing anew, so the number of lines to erase is not known.
    """
    if console.size != before:
        drawing.stop()
        console.clear()
        drawing.start()
    return console.size


_UNBOUNDED = 10_000


def table(*words: str, right: Sequence[str] = ()) -> Table:
    """An empty table with columns of words, then of numbers; no cell is broken into lines."""
    sheet = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in words:
        sheet.add_column(heading, no_wrap=True)
    for heading in right:
        sheet.add_column(heading, justify="right", no_wrap=True)
    return sheet


class Sheet:
    """A table; where the screen is narrower, several with some of its columns each.

    Each of them begins with the first `keys` columns, in which long names are folded.
    """

    def __init__(self, table: Table, keys: int = 1) -> None:
        self._table, self._keys = table, keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich's console protocol."""
        wide = options.update(max_width=_UNBOUNDED)
        for place, part in enumerate(self._parts(console, wide, options.max_width)):
            if place:
                yield Text()
                part.title = None
            yield part

    def _parts(self, console: Console, wide: ConsoleOptions, width: int) -> Iterator[Table]:
        keys = [
            replace(column, overflow="fold", no_wrap=False, max_width=width // (2 * self._keys))
            for column in self._table.columns[: self._keys]
        ]
        columns: list[Column] = []
        for column in self._table.columns[self._keys :]:
            together = self._with([*keys, *columns, column])
            if columns and Measurement.get(console, wide, together).maximum > width:
                yield self._with([*keys, *columns])
                columns = []
            columns.append(column)
        yield self._with([*keys, *columns])

    def _with(self, columns: list[Column]) -> Table:
        part = copy(self._table)
        part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
        return part
