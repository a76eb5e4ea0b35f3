"""Reading the log of requests, also while gateways write it; as text for other programs."""

from __future__ import annotations

import csv
import heapq
import io
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .record import Outcome, ServedRequest
from .request_log import COLUMNS, segments

_DERIVED = "own_latency_s"


@dataclass(frozen=True, slots=True)
class Query:
    """Which requests; None: whatever it is."""

    since: float | None = None
    """Unix time of the earliest arrival."""
    until: float | None = None
    """Unix time before which they arrived."""
    id: str | None = None
    key: str | None = None
    model: str | None = None
    strategy: str | None = None
    endpoint: str | None = None
    replica: str | None = None
    outcome: Outcome | None = None
    status: int | None = None
    slower_than_s: float | None = None
    """Seconds between the first byte in and the last byte out."""

    def where(self) -> tuple[str, list[object]]:
        """The condition in SQL, and its values."""
        conditions: list[tuple[str, object]] = [
            ("time >= ?", self.since),
            ("time < ?", self.until),
            ("t6 > ?", self.slower_than_s),
            *(
                (f"{name} = ?", getattr(self, name))
                for name in (
                    *("id", "key", "model", "strategy", "endpoint", "replica", "outcome"),
                    "status",
                )
            ),
        ]
        asked = [(text, value) for text, value in conditions if value is not None]
        return " AND ".join(text for text, _ in asked) or "1", [value for _, value in asked]


def read_requests(
    folder: Path,
    query: Query | None = None,
    *,
    last: int | None = None,
    unreadable: Callable[[Path, str], None] = lambda file, why: None,
) -> Iterator[ServedRequest]:
    """The requests in a folder that a query asks for, in the order of their arrival.

    With `last`, only the latest ones, at most that many. `unreadable` is called with each
    damaged segment and the reason; its readable records are given.
    """
    query = query or Query()
    if last is not None:
        newest = heapq.merge(
            *(_rows(file, query, unreadable, newest_first=last) for file in segments(folder)),
            key=lambda record: -record.time,
        )
        yield from reversed(list(itertools.islice(newest, last)))
        return
    yield from heapq.merge(
        *(_rows(file, query, unreadable) for file in segments(folder)),
        key=lambda record: record.time,
    )


def as_json_lines(records: Iterable[ServedRequest]) -> Iterator[str]:
    """A JSON object for each record, without line breaks in it or after it."""
    for record in records:
        yield msgspec.json.encode(_fields(record)).decode()


def as_csv(records: Iterable[ServedRequest]) -> Iterator[str]:
    """The lines of a CSV file (RFC 4180, with LF as the line's end), the first with the names.

    A prompt may hold line breaks: what is one line here may be several in the file.
    """
    heading: list[object] = [*COLUMNS, _DERIVED]
    for row in itertools.chain([heading], map(_values, records)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()


def _rows(
    file: Path,
    query: Query,
    unreadable: Callable[[Path, str], None],
    newest_first: int | None = None,
) -> Iterator[ServedRequest]:
    where, values = query.where()
    order = "time" if newest_first is None else f"time DESC LIMIT {newest_first}"
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            rows = connection.execute(
                f"SELECT * FROM requests WHERE {where} ORDER BY {order}", values
            )
            names = [column[0] for column in rows.description]
            for row in rows:
                found = {
                    name: value for name, value in zip(names, row, strict=True) if name in COLUMNS
                }
                yield msgspec.convert({**found, "t0": 0.0}, ServedRequest, strict=False)
    except (sqlite3.Error, msgspec.ValidationError) as error:
        unreadable(file, str(error))


def _fields(record: ServedRequest) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in COLUMNS}
    return {**fields, _DERIVED: record.own_latency_s()}


def _values(record: ServedRequest) -> list[object]:
    return ["" if value is None else value for value in _fields(record).values()]
