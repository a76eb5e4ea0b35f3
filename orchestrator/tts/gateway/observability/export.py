"""Records of requests as text for other programs: JSON lines or CSV, every field by its name."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator

import msgspec

from .record import RequestRecord
from .request_log import COLUMNS

_DERIVED = "own_latency_s"


def as_json_lines(records: Iterable[RequestRecord]) -> Iterator[str]:
    """A JSON object for each record, without line breaks in it or after it."""
    for record in records:
        yield msgspec.json.encode(_fields(record)).decode()


def as_csv(records: Iterable[RequestRecord]) -> Iterator[str]:
    """The lines of a CSV file (RFC 4180, but for the line's end), the first with the names.

    A prompt may hold line breaks: what is one line here may be several in the file.
    """
    heading: list[object] = [*COLUMNS, _DERIVED]
    for row in itertools.chain([heading], map(_values, records)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()


def _fields(record: RequestRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in COLUMNS}
    return {**fields, _DERIVED: record.own_latency_s()}


def _values(record: RequestRecord) -> list[object]:
    return ["" if value is None else value for value in _fields(record).values()]
