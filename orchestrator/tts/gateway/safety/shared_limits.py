"""The limits of keys, held for all gateways of a user together, in a SQLite file.

    <home>/gateway/limits.db   mode 0600; WAL

Each admission, and each end of a request, is one transaction: it reads the file, applies the
rules of `limits`, and writes the outcome. So gateways together admit what one alone would. The
holdings of a gateway's requests (searches, tokens at most) have a row of their own, which counts
until it has not been confirmed for `GONE_AFTER_S`: a gateway that is killed gives back its
holdings.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tts.build import paths
from tts.build.private import private_folder

from ..database_files import Identity, identity
from .limits import (
    NOTHING,
    UNLIMITED,
    Admission,
    Bucket,
    KeyLimits,
    KeyUsage,
    LimitsUnusable,
    Refusal,
    Spent,
)

logger = logging.getLogger(__name__)

CONFIRMED_S = 10.0
"""How often a gateway confirms what it holds."""
GONE_AFTER_S = 60.0
WAITS_S = 0.5
"""For another gateway's transaction; each takes less than a millisecond."""
_MINUTE_NS = 60_000_000_000
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS buckets (
    key TEXT NOT NULL,
    what TEXT NOT NULL,
    per_minute INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (key, what)
) WITHOUT ROWID
""",
    """
CREATE TABLE IF NOT EXISTS held (
    key TEXT NOT NULL,
    gateway TEXT NOT NULL,
    searches INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    confirmed REAL NOT NULL,
    PRIMARY KEY (key, gateway)
) WITHOUT ROWID
""",
)


def limits_file() -> Path:
    """Where shared limits are kept."""
    return paths.gateway_dir() / "limits.db"


class SharedLimiter:
    """Admits requests as `limits.Limiter` does, for all gateways that share the file.

    For one thread. Raises LimitsUnusable while the file cannot be used. `clock` gives Unix time in
    nanoseconds, which all processes of a machine agree on.
    """

    def __init__(self, file: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self.clock = clock
        self._file = file
        self._name = secrets.token_hex(8)
        self._held: dict[str, tuple[int, int]] = {}
        """Searches and tokens that requests of this gateway hold, by key."""
        self._connection: sqlite3.Connection | None = None
        self._files: Identity = ()
        with self._transaction():
            pass

    def admit(
        self,
        key: str | None,
        limits: KeyLimits,
        now_ns: int,
        *,
        tokens: int,
        search: bool,
        spent: Spent = NOTHING,
    ) -> Admission | Refusal:
        """Admit a request and charge it, or say why not; see `limits.Limiter`."""
        if key is None or limits == UNLIMITED:
            return Admission([])
        with self._transaction() as connection:
            usage, others = self._read(connection, key, limits, now_ns)
            admitted = usage.admit(now_ns, tokens=tokens, search=search, spent=spent)
            held = usage.searches - others[0], usage.reserved - others[1]
            self._write(connection, key, usage, held, now_ns)
        if isinstance(admitted, Refusal):
            return admitted
        self._held[key] = held
        admitted.settled_by = partial(self._end, key, limits)
        return admitted

    def confirm(self) -> None:
        """Say that this gateway lives, and forget those that have not for a while."""
        now = self.clock() / 1e9
        with self._transaction() as connection:
            mine = "UPDATE held SET confirmed = ? WHERE gateway = ?"
            connection.execute(mine, (now, self._name))
            connection.execute("DELETE FROM held WHERE confirmed < ?", (now - GONE_AFTER_S,))

    def _end(
        self, key: str, limits: KeyLimits, admitted: Admission, now_ns: int, tokens: int
    ) -> None:
        searches, reserved = self._held[key]
        held = searches - admitted.search, reserved - admitted.held
        self._held[key] = held  # what is not written now is written with the next request
        try:
            with self._transaction() as connection:
                usage, _ = self._read(connection, key, limits, now_ns)
                usage.settle(admitted, now_ns, tokens)
                self._write(connection, key, usage, held, now_ns)
        except LimitsUnusable as error:
            logger.warning("a request's end is not known to other gateways: %s", error.message)

    def _read(
        self, connection: sqlite3.Connection, key: str, limits: KeyLimits, now_ns: int
    ) -> tuple[KeyUsage, tuple[int, int]]:
        """A key's usage in all gateways, and the part that the others hold."""
        usage = KeyUsage.of(limits)
        found = {
            what: (per_minute, [int(part) for part in state.split()])
            for what, per_minute, state in connection.execute(
                "SELECT what, per_minute, state FROM buckets WHERE key = ?", (key,)
            )
        }
        for what in ("requests", "tokens"):
            bucket: Bucket | None = getattr(usage, what)
            if bucket and what in found and found[what][0] == bucket.per_minute:
                empty_at, refunded = found[what][1]
                # a clock that was set back leaves a full bucket, not one that is full for longer
                most = (now_ns + _MINUTE_NS) * bucket.per_minute
                state = min(empty_at, most), refunded
                setattr(usage, what, Bucket(bucket.per_minute, state))
        others = connection.execute(
            "SELECT coalesce(sum(searches), 0), coalesce(sum(reserved), 0) FROM held "
            "WHERE key = ? AND gateway <> ? AND confirmed >= ?",
            (key, self._name, now_ns / 1e9 - GONE_AFTER_S),
        ).fetchone()
        searches, reserved = self._held.get(key, (0, 0))
        usage.searches, usage.reserved = others[0] + searches, others[1] + reserved
        return usage, others

    def _write(
        self,
        connection: sqlite3.Connection,
        key: str,
        usage: KeyUsage,
        held: tuple[int, int],
        now_ns: int,
    ) -> None:
        for what, bucket in (("requests", usage.requests), ("tokens", usage.tokens)):
            if bucket:  # its numbers are too large for SQLite's integers
                state = " ".join(map(str, bucket.state))
                row = key, what, bucket.per_minute, state
                connection.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?)", row)
        mine = key, self._name, *held, now_ns / 1e9
        connection.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", mine)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One that writes: no other gateway's is between what it reads and what it writes."""
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (OSError, sqlite3.Error, ValueError) as error:
            raise LimitsUnusable(
                f"The limits that gateways share, in {self._file}, cannot be used: {error}.",
                hint="Correct that, or remove the file and its -wal and -shm: what was used in the "
                "last minute is forgotten.",
            ) from error

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now."""
        if self._connection and identity(self._file) == self._files:
            return self._connection
        if self._connection:
            self._connection.close()
            self._connection = None
        private_folder(self._file.parent)
        connection = sqlite3.connect(self._file, timeout=WAITS_S, isolation_level=None)
        try:
            self._file.chmod(0o600)  # SQLite makes it by the umask; -wal and -shm take its mode
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")  # nothing that a crash must not lose
            for table in _TABLES:
                connection.execute(table)
        except BaseException:
            connection.close()
            raise
        self._connection, self._files = connection, identity(self._file)
        return connection

    def close(self) -> None:
        """Give back what this gateway holds."""
        try:
            with self._transaction() as connection:
                connection.execute("DELETE FROM held WHERE gateway = ?", (self._name,))
        except LimitsUnusable as error:
            logger.warning("%s", error.message)
        if self._connection:
            self._connection.close()
            self._connection = None
