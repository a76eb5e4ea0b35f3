"""The rows of a dataset file, one at a time, and which of its columns hold what.

The suffix tells JSONL, CSV, TSV and Parquet apart; a JSON file may hold a list, or lines as JSONL.
A row comes with its place, which errors name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from tts.base.errors import DatasetError
from tts.base.extras import how_to_install
from tts.base.input_files import Unreadable, as_text, parse_json, read_text, require_text

MAX_LINE_BYTES = 1_000_000
"""Longest line of a JSONL or CSV file: the line of one problem."""


_JSONL = (
    'A row is an object, such as {"problem": "1 + 1?"}. CSV, TSV and Parquet files are known by '
    "their names (.csv, .tsv, .parquet)."
)


@dataclass(frozen=True)
class DatasetRow:
    """One row, and where it is."""

    number: int
    """Number of its first line, header included, or of the row of a Parquet file, from 1 on."""
    place: str
    """Where it is in the file: `line 7` or `row 7`."""
    cells: dict[str, Any]
    """The cells, by column."""


def read_rows(file: Path) -> Iterator[DatasetRow]:
    """The rows of a file that are not blank, in order; raises DatasetError."""
    try:
        with file.open("rb") as stream:
            start = stream.read(4096)
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror or error}.") from error
    if start.startswith(b"version https://git-lfs"):
        raise DatasetError(
            f"{file} is a pointer of git-lfs, and not the file.", hint="Fetch it: git lfs pull"
        )
    if start.startswith(b"\x1f\x8b"):
        raise DatasetError(f"{file} is packed by gzip.", hint=f"Unpack it: gunzip {file.name}")
    match file.suffix.lower():
        case ".csv":
            return _csv_rows(file, ",")
        case ".tsv":
            return _csv_rows(file, "\t")
        case ".parquet":
            return _parquet_rows(file)
        case ".json" if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
            return _list_rows(file)
        case _:
            return _jsonl_rows(file)


def _jsonl_rows(file: Path) -> Iterator[DatasetRow]:
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        if not line.strip():
            continue
        try:
            data = parse_json(as_text(line.rstrip()), strict=True)
        except Unreadable as error:
            raise DatasetError(f"{where} cannot be read: {error}.", hint=_JSONL) from error
        yield _json_row(file, number, f"line {number}", data)


def _json_row(file: Path, number: int, place: str, data: Any) -> DatasetRow:
    if isinstance(data, dict):
        return DatasetRow(number, place, data)
    raise DatasetError(f"{file}, {place} must hold a JSON object.", hint=_JSONL)


def _list_rows(file: Path) -> Iterator[DatasetRow]:
    try:
        rows = parse_json(read_text(file), strict=True)
    except (OSError, Unreadable) as error:
        raise DatasetError(f"{file} cannot be read: {error}.") from error
    for number, data in enumerate(rows, start=1):
        yield _json_row(file, number, f"row {number}", data)


def _csv_rows(file: Path, delimiter: str) -> Iterator[DatasetRow]:
    """The rows below the header; a quoted cell may span lines, and the first one names the row."""
    header: Sequence[str] | None = None
    csv.field_size_limit(MAX_LINE_BYTES)  # of the process: its own default is 131,072
    reader = csv.reader(_text_lines(file), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        where = f"{file}, line {number}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            why = "a CR stands in it without LF" if "new-line" in str(error) else error
            raise DatasetError(f"{where} cannot be read: {why}.") from error
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
            if twice := {name for name in header if header.count(name) > 1}:
                raise DatasetError(f"{where}: the column {min(twice)!r:.100} is named twice.")
        elif len(cells) != len(header):
            raise DatasetError(
                f"{where} has {len(cells)} cells, but the header names {len(header)} columns.",
                hint=f"A cell that holds {delimiter!r} or a line's end must stand in quotes.",
            )
        else:
            yield DatasetRow(number, f"line {number}", dict(zip(header, cells, strict=True)))


def _parquet_rows(file: Path) -> Iterator[DatasetRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DatasetError(
            f"{file} is a Parquet file, and pyarrow, which reads these, cannot be used: {error}.",
            hint=f"Install it: {how_to_install('parquet')}\nOr save the file as JSONL.",
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    for cell in row.values():
                        if isinstance(cell, str):
                            require_text(cell)
                    yield DatasetRow(number, f"row {number}", row)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, Unreadable) as error:
        place = f"row {number}" if isinstance(error, Unreadable) else f"after row {number}"
        why = " ".join(str(error).split()).rstrip(".")
        raise DatasetError(f"{file}, {place}: it cannot be read: {why:.300}.") from error


def _text_lines(file: Path) -> Iterator[str]:
    for number, line in _lines(file):
        try:
            yield as_text(line) if number == 1 else line.decode()
        except (Unreadable, UnicodeDecodeError) as error:
            raise DatasetError(f"{file}, line {number} cannot be read: it is not UTF-8.") from error


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """All lines with their numbers, starting at 1; raises DatasetError."""
    try:
        with file.open("rb") as stream:
            number = 0
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DatasetError(
                        f"{file}, line {number} has more than {MAX_LINE_BYTES:,} bytes.",
                        hint="A line is one problem. Is this a JSONL, CSV or Parquet file, and is "
                        "it named so (.jsonl, .csv, .parquet)?",
                    )
                yield number, line
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror or error}") from error


ProblemField = Literal["problem", "answer", "id", "level", "choices"]
Columns = Mapping[ProblemField, str]
"""The columns that the user named, by the field of a problem that each holds."""

PROBLEM_FIELDS: Final[tuple[ProblemField, ...]] = get_args(ProblemField)
USUAL: Final[Mapping[ProblemField, tuple[str, ...]]] = {
    "problem": ("problem", "question"),
    "answer": ("answer",),
    "id": ("unique_id", "id"),
    "level": ("level",),
    "choices": (),
}
"""Usual names of a column; the first one that a row has counts."""
REQUIRED: Final[frozenset[ProblemField]] = frozenset(("problem",))

_NEXT = re.compile(r",(?=\w+=)")


def parse_columns(texts: Iterable[str]) -> dict[ProblemField, str]:
    """The columns of `problem=question,answer=final`; a part may stand by itself, too.

    A comma that no `name=` follows belongs to the column's name. Raises DatasetError.
    """
    columns: dict[ProblemField, str] = {}
    for part in (part for text in texts for part in _NEXT.split(text)):
        field, separator, column = part.partition("=")
        if not separator or not column:
            raise DatasetError(
                f"{part!r:.100} names no column.",
                hint="Write what a column holds, =, and its name: problem=question,answer=final.",
            )
        if field in columns:
            raise DatasetError(f"The column of {field} is given twice.")
        columns.update(check_columns({field: column}))
    return columns


def check_columns(columns: Mapping[Any, str]) -> dict[ProblemField, str]:
    """A mapping that is checked to name nothing but fields of a problem; raises DatasetError."""
    for field, column in columns.items():
        if field not in PROBLEM_FIELDS:
            raise DatasetError(
                f"Columns hold {', '.join(PROBLEM_FIELDS[:-1])} or {PROBLEM_FIELDS[-1]}, "
                f"not {field!r:.100}."
            )
        if not isinstance(column, str) or not column:
            raise DatasetError(f"The column of {field} is {column!r:.100}; it must be a name.")
    return cast("dict[ProblemField, str]", dict(columns))


def column_of(
    field: ProblemField, columns: Columns, present: Collection[str], where: str
) -> str | None:
    """The column of `field`, None for an optional one; DatasetError for a missing one."""
    names = (columns[field],) if field in columns else USUAL[field]
    for name in names:
        if name in present:
            return name
    if field not in columns and field not in REQUIRED:
        return None
    raise missing_column(names, present, where)


def choice_columns(columns: Columns, present: Collection[str], where: str) -> tuple[str, ...]:
    """The column of all choices, or those of each (`A+B+C`); none without choices."""
    if "choices" not in columns:
        return ()
    name = columns["choices"]
    if name in present:
        return (name,)
    parts = tuple(name.split("+"))
    if missing := tuple(part for part in parts if part not in present):
        raise missing_column(missing[:1], present, where)
    return parts


def missing_column(names: Collection[str], present: Collection[str], where: str) -> DatasetError:
    """The error of a row without any of these columns, which names those that it has."""
    there = ", ".join(sorted(present)) or "none"
    return DatasetError(
        f"{where} lacks the field {' or '.join(map(repr, names))}; it has {there:.500}.",
        hint="Rename it, or name the columns: tts bench --columns problem=...,answer=... (in "
        "Python columns={...}).",
    )
