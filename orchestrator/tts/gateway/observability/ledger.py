"""A running gateway's hold on its database: keys in memory, and what requests used and were.

The event loop asks and tells; it never waits for the disk. One thread, the recorder's, looks at the
file and writes: it sees within `SEES_CHANGES_S` what `tts gateway keys` and other gateways change,
and writes the requests of each batch with what they used, all of it or nothing. So budgets hold for
all gateways together and over restarts. A gateway that is killed loses what ended in its last
100 ms: a record waits for no disk, as the -wal is moved into the file by another thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from ..database import Identity, connected, identity, transaction, unusable
from ..safety.keys import NOTE_USE, ApiKey, read_secrets
from ..safety.limits import Spending
from ..safety.usage import ADD, NO_KEY, day_of, left_s, read_totals, with_row
from ..safety.usage import TABLE as USAGE
from .record import TABLES as REQUESTS
from .record import ServedRequest, write_requests

logger = logging.getLogger(__name__)

SEES_CHANGES_S = 0.2
"""Within this a key that is revoked is refused, and what other gateways used counts."""
CHECKPOINT_EVERY = 200
"""Writes between two checkpoints: the -wal has up to about 8 MB."""


class Ledger:
    """`keys`, `spending_of` and `add` are for the event loop, `look` and `write` for a thread.

    `clock` gives Unix time. Raises DatabaseUnusable if the file cannot be used at first. Later
    nobody is let in while it cannot be read; requests that cannot be written are lost, and usage is
    kept until it can be.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self.lost_requests = 0
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        """Lock of what is in memory; never held while the disk is waited for."""
        self._keys: Mapping[bytes, ApiKey] = {}
        self._error: Exception | None = None
        self._day = ""
        self._totals: dict[str, tuple[int, int]] = {}
        """Tokens by key: what all gateways have written of `_day` and of its month."""
        self._unwritten: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
        self._connection: sqlite3.Connection | None = None
        self._files: Identity = ()
        self._version = -1
        self._writes = 0
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="gateway-database")
        self.look()
        if self._error:
            raise unusable(file, self._error) from self._error

    def keys(self) -> Mapping[bytes, ApiKey]:
        """The keys that are not revoked, by their hashes; raises DatabaseUnusable."""
        if error := self._error:
            raise unusable(self._file, error) from error
        return self._keys

    def spending_of(self, key: str) -> Spending:
        """Usage of a key today and this month, with what is not yet written."""
        now = self._clock()
        day = day_of(now)
        with self._lock:
            tokens = self._totals.get(key, (0, 0))
            if self._day != day:
                tokens = 0, tokens[1] if self._day[:7] == day[:7] else 0
            for (of_day, of_key, _), counts in self._unwritten.items():
                if of_key == key:
                    tokens = with_row(tokens, day, of_day, counts)
        return Spending(*tokens, *left_s(now))

    def add(self, record: ServedRequest) -> None:
        """An admitted request has ended: what it used counts from now on."""
        tokens = record.prompt_tokens, record.answer_tokens, record.search_tokens
        names = day_of(self._clock()), record.key or NO_KEY, record.model
        with self._lock:
            row = self._unwritten[names]
            for place, count in enumerate((1, *tokens, record.verifier_tokens)):
                row[place] += count

    def look(self) -> None:
        """Read what others have changed since the last look."""
        day = day_of(self._clock())
        try:
            connection = self._current()
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if (version, day) != (self._version, self._day):
                keys, totals = read_secrets(connection), read_totals(connection, day)
                with self._lock:
                    self._day, self._totals = day, totals
                self._keys = keys
                self._version = version
            self._error = None
        except (OSError, sqlite3.Error) as error:
            self._complain(error)

    def write(self, records: Sequence[ServedRequest]) -> None:
        """Write ended requests, and all that was used until now."""
        self.look()
        with self._lock:
            rows = {names: list(counts) for names, counts in self._unwritten.items()}
        try:
            _write(self._connection or self._current(), records, rows)
            if identity(self._file) != self._files:  # removed under this very write
                _write(self._current(), records, rows)
        except (OSError, sqlite3.Error, UnicodeError) as error:
            self.lost_requests += len(records)
            self._complain(error)
            return
        with self._lock:
            for (day, key, model), counts in rows.items():
                row = self._unwritten[day, key, model]
                row[:] = [a - b for a, b in zip(row, counts, strict=True)]
                if not any(row):
                    del self._unwritten[day, key, model]
                total = self._totals.get(key, (0, 0))
                self._totals[key] = with_row(total, self._day, day, counts)
        self._writes += 1
        if self._writes % CHECKPOINT_EVERY == 0:
            self._disk.submit(_checkpoint, self._file)

    def close(self) -> None:
        """Write what is left and let go of the file."""
        if self._unwritten:
            self.write(())
        self._disk.shutdown()
        self._let_go()

    def _current(self) -> sqlite3.Connection:
        if self._connection and identity(self._file) == self._files:
            return self._connection
        if self._connection:
            logger.warning("%s is another file than before: it is read anew", self._file)
        self._let_go()
        connection = connected(self._file, USAGE, *REQUESTS)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")  # it would wait for the disk
        self._connection, self._files, self._version = connection, identity(self._file), -1
        return connection

    def _let_go(self) -> None:
        if not self._connection:
            return
        self._connection.close()
        self._connection = None
        file, *beside = identity(self._file)
        # the -wal of a file that has gone must not be read with another
        if file != self._files[0]:
            for end, now, ours in zip(("-wal", "-shm"), beside, self._files[1:], strict=True):
                if now == ours:
                    self._file.with_name(self._file.name + end).unlink(missing_ok=True)

    def _complain(self, error: Exception) -> None:
        if self._error is None:
            logger.warning("%s cannot be used: %s; usage is kept in memory", self._file, error)
        self._error = error


def _write(
    connection: sqlite3.Connection,
    records: Sequence[ServedRequest],
    rows: Mapping[tuple[str, str, str], Sequence[int]],
) -> None:
    last_uses = {each.key: (each.time, each.client, each.key) for each in records if each.key}
    with transaction(connection):
        write_requests(connection, records)
        connection.executemany(ADD, [(*names, *counts) for names, counts in rows.items()])
        connection.executemany(NOTE_USE, last_uses.values())


def _checkpoint(file: Path) -> None:
    """Move what the -wal holds into the file, while others write on."""
    address = f"{file.absolute().as_uri()}?mode=rw"  # not made anew where it has been removed
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
