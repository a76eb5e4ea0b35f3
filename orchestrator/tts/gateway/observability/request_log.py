"""The log of requests: rows of the gateway's database, which can be read while they are written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ..database import database
from .record import ServedRequest

KEPT_S = 30 * 24 * 3600
"""How long a request is kept, if there is room."""
MAX_BYTES = 2**30
"""Bytes of the database; then the oldest requests go. The file keeps its size, and others take
their place."""
FORGOTTEN = 1000
"""Most requests that one batch removes, or twice its own: it must not hold up the next one."""

COLUMNS = tuple(name for name in ServedRequest.__struct_fields__ if name != "t0")
_TIMES = frozenset(("t1", "t2", "t3", "t4", "t5", "t6"))
_TYPES = {
    "id": "TEXT NOT NULL",
    "time": "REAL NOT NULL",
    **dict.fromkeys(_TIMES, "REAL"),
    **dict.fromkeys(("stream", "status"), "INTEGER NOT NULL"),
    **dict.fromkeys(
        ("prompt_tokens", "answer_tokens", "search_tokens", "verifier_tokens"), "INTEGER NOT NULL"
    ),
}
TABLE = "CREATE TABLE IF NOT EXISTS requests ({})".format(
    ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in COLUMNS)
)
INDEX = "CREATE INDEX IF NOT EXISTS requests_by_time ON requests (time)"
INSERT = f"INSERT INTO requests ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


def row_of(record: ServedRequest) -> tuple[object, ...]:
    """A record's columns, times counted from t0."""
    values = []
    for name in COLUMNS:
        value = getattr(record, name)
        if value is not None and name in _TIMES:
            value -= record.t0
        values.append(value)
    return tuple(values)


def forget_old(connection: sqlite3.Connection, count: int) -> None:
    """Remove the oldest requests that are too old or too much, after `count` were written."""
    condition, values = "time < ?", [time.time() - KEPT_S]
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size > MAX_BYTES:
        condition, values = "1", []
    connection.execute(
        "DELETE FROM requests WHERE rowid IN "
        f"(SELECT rowid FROM requests WHERE {condition} ORDER BY time LIMIT ?)",
        (*values, max(FORGOTTEN, 2 * count)),
    )


def read_requests(
    file: Path,
    deployment: str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    last: int | None = None,
) -> Iterator[ServedRequest]:
    """The requests to a deployment's models, or all, in the order of their arrival.

    They came from the Unix time `since` on and before `until`; with `last`, at most so many of the
    latest. Raises DatabaseUnusable.
    """
    name = deployment or ""
    conditions = "time >= ? AND time < ? AND (? = '' OR model = ? OR substr(model, 1, ?) = ?)"
    latest = (
        f"SELECT {', '.join(COLUMNS)} FROM requests WHERE {conditions} ORDER BY time DESC LIMIT ?"
    )
    never, always = float("-inf"), float("inf")
    values = (
        never if since is None else since,
        always if until is None else until,
        *(name, name, len(name) + 1, f"{name}:"),
        -1 if last is None else last,
    )
    with database(file, TABLE, INDEX) as connection:
        for row in connection.execute(f"SELECT * FROM ({latest}) ORDER BY time", values):
            fields = dict(zip(COLUMNS, row, strict=True))
            yield msgspec.convert({**fields, "t0": 0.0}, ServedRequest, strict=False)


def as_json_lines(records: Iterable[ServedRequest]) -> Iterator[str]:
    """A JSON object for each record, without line breaks in it or after it."""
    for record in records:
        fields = {name: getattr(record, name) for name in COLUMNS}
        fields["own_latency_s"] = record.own_latency_s()
        yield msgspec.json.encode(fields).decode()
