"""One request, from its arrival to its last byte, and the log of requests in the database.

| time | when |
|---|---|
| t0 | it arrived |
| t1 | it was admitted: read, its key known, within its limits, its prompt through the filters |
| t2 | its first request was sent to an engine |
| t3 | the engine gave the first output that reaches the client |
| t4 | that came out of the output filters |
| t5 | the first byte of the answer was handed to the HTTP server |
| t6 | the last byte was |

Whoever handles the request sets them, by `time.monotonic()`. What it never reached stays None. The
log can be read while it is written.
"""

from __future__ import annotations

import sqlite3
import time as clock
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from ..database import database, read_only

Outcome = Literal["ok", "refused", "filtered", "cancelled", "deadline", "failed"]
"""refused: by the gateway, as wrong or not allowed; cancelled: by the client, who went away;
failed: an engine or the gateway broke."""

STAGES = (
    ("admission", "t0", "t1"),
    ("queue", "t1", "t2"),
    ("engine", "t2", "t3"),
    ("filters", "t3", "t4"),
    ("encoding", "t4", "t5"),
    ("sending", "t5", "t6"),
)


class ServedRequest(msgspec.Struct, kw_only=True):
    """One request. Mutable: filled in while it is handled; no secret is in it."""

    id: str
    """The id in its `x-request-id`, and of the answer."""
    endpoint: str
    """The path as routed, such as /v1/chat/completions; never what a client made up."""
    time: float
    """Unix time of t0."""
    t0: float
    """Monotonic seconds; 0 in a record that was read from disk, whose other times count from it."""
    t1: float | None = None
    t2: float | None = None
    t3: float | None = None
    t4: float | None = None
    t5: float | None = None
    t6: float | None = None
    model: str = ""
    """The name in `/v1/models`; empty until it is known to exist."""
    strategy: str | None = None
    """The strategy of a search; None for plain generation."""
    stream: bool = False
    key: str | None = None
    """The id of its API key."""
    replica: str | None = None
    outcome: Outcome = "failed"
    status: int = 0
    """The status of HTTP; 200 also when a stream broke later, which `outcome` tells."""
    error: str | None = None
    """The kind of error, such as rate_limit_exceeded: a word, no text of the client's."""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    search_tokens: int = 0
    """Generated, but not part of the answer."""
    verifier_tokens: int = 0
    prompt: str | None = None
    """None unless the gateway was asked to keep prompts and answers."""
    answer: str | None = None
    trace_parent: str | None = None
    """The W3C `traceparent` header that it came with."""
    client: str | None = None
    """The address that it came from; None if addresses are not kept."""

    def own_latency_s(self, now: float | None = None) -> float | None:
        """Seconds of the gateway before the first byte, (t2-t0) + (t5-t3); `now` stands for t5."""
        t5 = now if self.t5 is None else self.t5
        if self.t2 is None or self.t3 is None or t5 is None:
            return None
        return (self.t2 - self.t0) + (t5 - self.t3)

    def gateway_ms(self) -> float | None:
        """The gateway's own latency so far in milliseconds, for an answer that is being written."""
        own = self.own_latency_s(clock.monotonic())
        return None if own is None else round(1000 * own, 3)

    @property
    def spent_tokens(self) -> int:
        """The tokens that count towards budgets: all but those that the verifier reads."""
        return self.prompt_tokens + self.answer_tokens + self.search_tokens

    def seconds(self, begin: str, end: str) -> float | None:
        """Between two of its times, by their names; None if it did not reach both."""
        first: float | None = getattr(self, begin)
        last: float | None = getattr(self, end)
        return None if first is None or last is None else last - first

    def time_per_token_s(self) -> float | None:
        """Between two tokens of a streamed answer after its first, on average."""
        sending = self.seconds("t5", "t6")
        if not self.stream or sending is None or self.answer_tokens < 2:
            return None
        return sending / (self.answer_tokens - 1)


KEPT_S = 30 * 24 * 3600
MAX_BYTES = 2**30
"""Bytes of the database; then the oldest requests go. The file keeps its size, and others take
their place."""
FORGOTTEN = 1000
"""Most requests that one batch removes, or twice its own: it must not hold up the next one."""

_FIELDS = tuple(name for name in ServedRequest.__struct_fields__ if name != "t0")
_COLUMNS = tuple(name for name in _FIELDS if name != "client")
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
TABLES = (
    "CREATE TABLE IF NOT EXISTS requests ({})".format(
        ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in _COLUMNS)
    ),
    "CREATE INDEX IF NOT EXISTS requests_by_time ON requests (time)",
    # apart, since 0.2.0 can use no other columns of requests; the trigger works for it, too
    "CREATE TABLE IF NOT EXISTS clients (time REAL NOT NULL, id TEXT NOT NULL, "
    "client TEXT NOT NULL, PRIMARY KEY (time, id)) WITHOUT ROWID",
    "CREATE TRIGGER IF NOT EXISTS forget_client AFTER DELETE ON requests BEGIN "
    "DELETE FROM clients WHERE time = old.time AND id = old.id; END",
)
MAX_VALUES = 999
"""Values of one statement that every SQLite takes."""


def write_requests(connection: sqlite3.Connection, records: Sequence[ServedRequest]) -> None:
    """Write records, and remove old ones."""
    _insert(connection, f"INTO requests ({', '.join(_COLUMNS)})", list(map(_row, records)))
    clients = [(each.time, each.id, each.client) for each in records if each.client is not None]
    _insert(connection, "OR REPLACE INTO clients", clients)
    _forget_old(connection, len(records))


def _insert(connection: sqlite3.Connection, into: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, many with one statement: each takes the interpreter lock from the loop."""
    width = len(rows[0]) if rows else 1
    for start in range(0, len(rows), size := MAX_VALUES // width):
        some = rows[start : start + size]
        places = ", ".join([f"({', '.join('?' * width)})"] * len(some))
        connection.execute(f"INSERT {into} VALUES {places}", [*chain.from_iterable(some)])


def _row(record: ServedRequest) -> tuple[object, ...]:
    values = []
    for name in _COLUMNS:
        value = getattr(record, name)
        if value is not None and name in _TIMES:
            value -= record.t0
        values.append(value)
    return tuple(values)


def _forget_old(connection: sqlite3.Connection, count: int) -> None:
    """Remove the oldest requests that are too old or too much, after `count` were written."""
    condition, values = "time < ?", [clock.time() - KEPT_S]
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
    is_copy: bool = False,
) -> Iterator[ServedRequest]:
    """The requests to a deployment's models, or all, in the order of their arrival.

    They came from the Unix time `since` on and before `until`; with `last`, at most so many of the
    latest. A copy is not changed. Raises DatabaseUnusable.
    """
    name = deployment or ""
    conditions = "time >= ? AND time < ? AND (? = '' OR model = ? OR substr(model, 1, ?) = ?)"
    latest = (
        f"SELECT {', '.join(_COLUMNS)} FROM requests WHERE {conditions} ORDER BY time DESC LIMIT ?"
    )
    never, always = float("-inf"), float("inf")
    values = (
        never if since is None else since,
        always if until is None else until,
        *(name, name, len(name) + 1, f"{name}:"),
        -1 if last is None else last,
    )
    with read_only(file) if is_copy else database(file, *TABLES) as connection:
        of_0_2_0 = not connection.execute("PRAGMA table_info(clients)").fetchone()
        clients = "" if of_0_2_0 else "LEFT JOIN clients USING (time, id)"
        columns = (*_COLUMNS, *(() if of_0_2_0 else ("client",)))
        query = f"SELECT {', '.join(columns)} FROM ({latest}) {clients} ORDER BY time"
        for row in connection.execute(query, values):
            fields = dict(zip(columns, row, strict=True))
            yield msgspec.convert({**fields, "t0": 0.0}, ServedRequest, strict=False)


def as_json_lines(records: Iterable[ServedRequest]) -> Iterator[str]:
    """A JSON object for each record, without line breaks in it or after it."""
    for record in records:
        fields = {name: getattr(record, name) for name in _FIELDS}
        fields["own_latency_s"] = record.own_latency_s()
        yield msgspec.json.encode(fields).decode()
