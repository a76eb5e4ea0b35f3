"""What was measured, a line of JSON each, so that a measurement can be stopped and continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml


class Cell(msgspec.Struct, frozen=True):
    """A strategy at a budget with a seed; all of them solve the same problems."""

    strategy: str
    """As it was asked for: `NAME` or `NAME:PARAMETER=VALUE,...`."""
    budget: int
    seed: int

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.partition(":")[0]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are given with the name."""
        given = self.strategy.partition(":")[2]
        pairs = (part.partition("=") for part in given.split(",") if part)
        return {name.strip(): yaml.safe_load(value) for name, _, value in pairs}


class Fit(msgspec.Struct, frozen=True, tag="fit"):
    """The n of a strategy at a budget."""

    strategy: str
    budget: int
    n: int
    tokens: float
    """Mean tokens of a problem of the pilot; 0 where n was given."""


class Solved(msgspec.Struct, frozen=True, tag="solved"):
    """A problem's result."""

    cell: Cell
    problem: str
    right: bool
    tokens: int
    """Generated tokens in the tree, as a budget counts them: speculation is left out."""
    verifier_tokens: int
    seconds: float
    """From the start of the problem to its answer; others run at the same time."""
    limited: bool = False
    """Whether the budget ended the search."""


class Spent(msgspec.Struct, frozen=True, tag="spent"):
    """A stretch of work on a cell without an interruption."""

    cell: Cell
    problems: int
    wall_s: float


Record = Fit | Solved | Spent


class Records:
    """The records of a measurement, in memory and in a file that grows line by line."""

    def __init__(self, file: Path) -> None:
        """Read what the file holds; a last line that was cut off is dropped from it."""
        self.fits: dict[tuple[str, int], Fit] = {}
        self.solved: dict[Cell, dict[str, Solved]] = {}
        self.spent: dict[Cell, list[Spent]] = {}
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        if file.exists():
            text = file.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                file.write_bytes(whole)
            decode = msgspec.json.Decoder(Record).decode
            for line in whole.splitlines():
                self._take(decode(line))

    def add(self, records: Sequence[Record]) -> None:
        """Keep records, in the file first."""
        with self._file.open("ab") as file:
            file.writelines(self._encode(record) + b"\n" for record in records)
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        if isinstance(record, Fit):
            self.fits[record.strategy, record.budget] = record
        elif isinstance(record, Solved):
            self.solved.setdefault(record.cell, {})[record.problem] = record
        else:
            self.spent.setdefault(record.cell, []).append(record)
