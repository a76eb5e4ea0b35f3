"""A table that is never cut: what does not fit beside goes below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

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
