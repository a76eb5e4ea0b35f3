"""Requests on the local disk: SQLite files (segments) in a folder, readable meanwhile.

    <home>/gateway/requests/<deployment>/20260102T030405.678901-1a2b3c4d.db

A segment is begun when the one before is too large or too old, and the oldest are removed. Several
gateways may share a folder, each writing to segments of its own.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tts.build import paths
from tts.build.errors import RunError
from tts.build.private import private_folder

from ..database_files import identity
from .record import ServedRequest

logger = logging.getLogger(__name__)

SUFFIX = ".db"

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
_TABLE = "CREATE TABLE requests ({})".format(
    ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in COLUMNS)
)
_INSERT = f"INSERT INTO requests VALUES ({', '.join('?' * len(COLUMNS))})"
CHECKPOINT_EVERY = 200
"""Writes between two checkpoints: the -wal has up to about 8 MB."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the log is kept."""

    segment_bytes: int = 64 * 2**20
    segment_s: float = 24 * 3600
    total_bytes: int = 2**30
    total_s: float = 30 * 24 * 3600


def requests_dir(deployment: str) -> Path:
    """Where the requests to a deployment's gateway are kept when nobody says otherwise."""
    return paths.gateway_dir() / "requests" / deployment


class RequestLog:
    """The writer of a folder of segments, for one thread. Raises RunError if it cannot begin."""

    def __init__(self, folder: Path, retention: Retention | None = None) -> None:
        self.lost = 0
        """Records that could not be written."""
        self._folder = folder
        self._retention = retention or Retention()
        self._segment: _Segment | None = None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            private_folder(folder)
            remove_old(folder, self._retention)
            self._current()
        except (OSError, sqlite3.Error) as error:
            raise RunError(
                f"The request log in {folder} cannot be written: {error}.",
                hint="Make room there, or name another folder.",
            ) from error

    def write(self, records: Sequence[ServedRequest]) -> None:
        """Write records, which others see when this returns; on a full disk they are lost."""
        try:
            segment = self._current()
            segment.write(records)
            if not segment.is_there():  # removed under this very write
                segment = self._current()
                segment.write(records)
        except (OSError, sqlite3.Error):
            self.lost += len(records)
            return
        except BaseException:
            self.lost += len(records)
            raise
        if segment.is_full(self._retention):
            self.close()  # the next records begin another
            with suppress(OSError, sqlite3.Error):
                remove_old(self._folder, self._retention)

    def _current(self) -> _Segment:
        """The segment to write to: another one where it has been removed, moved or replaced."""
        if self._segment and not self._segment.is_there():
            logger.warning(
                "%s is not there any more: the log goes on in another file", self._segment.file
            )
            self.close()
        if self._segment is None:
            private_folder(self._folder)
            self._segment = _Segment(self._folder)
        return self._segment

    def close(self) -> None:
        """Let go of the files."""
        if self._segment:
            self._segment.close()
            self._segment = None


class RequestLogs:
    """The logs of several deployments: a record belongs to that which its model's name begins with.

    A record without a model is kept with the first.
    """

    def __init__(self, deployments: Sequence[str]) -> None:
        self._logs = {name: RequestLog(requests_dir(name)) for name in deployments}
        self._first = deployments[0]

    @property
    def lost(self) -> int:
        """Records that could not be written."""
        return sum(log.lost for log in self._logs.values())

    def write(self, records: Sequence[ServedRequest]) -> None:
        """Write records."""
        parts: dict[str, list[ServedRequest]] = {}
        for record in records:
            name = record.model.partition(":")[0]
            parts.setdefault(name if name in self._logs else self._first, []).append(record)
        for name, part in parts.items():
            self._logs[name].write(part)

    def close(self) -> None:
        """Let go of the files."""
        for log in self._logs.values():
            log.close()


class _Segment:
    """A file that is being written, as SQLite's own lock on it says to who removes old ones."""

    def __init__(self, folder: Path) -> None:
        self._began = time.monotonic()
        self._writes = 0
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="request-log-disk")
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.file = folder / f"{stamp}-{secrets.token_hex(4)}{SUFFIX}"
        self._connection = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        try:
            self.file.chmod(0o600)  # SQLite makes it by the umask; -wal and -shm take its mode
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute("PRAGMA wal_autocheckpoint=0")  # it would wait for the disk
            self._connection.execute(_TABLE)
            self._connection.execute("CREATE INDEX by_time ON requests (time)")
            self._files = identity(self.file)
        except BaseException:
            self._connection.close()
            _unlink(self.file)
            raise

    def is_there(self) -> bool:
        """Whether what is written is where others look for it."""
        return identity(self.file) == self._files

    def write(self, records: Sequence[ServedRequest]) -> None:
        self._connection.execute("BEGIN")
        try:
            self._connection.executemany(_INSERT, map(_row, records))
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._writes += 1
        if self._writes % CHECKPOINT_EVERY == 0:
            self._disk.submit(_checkpoint, self.file)

    def is_full(self, retention: Retention) -> bool:
        if time.monotonic() - self._began >= retention.segment_s:
            return True
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return bool(pages * size >= retention.segment_bytes)

    def close(self) -> None:
        """Make one plain file of it, without a -wal beside it; none if nothing is in it."""
        self._disk.shutdown()
        there = self.is_there()
        if there:
            with suppress(sqlite3.Error):  # somebody reads it: it stays as it is, which is as good
                self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()
        if there and not self._writes:
            _unlink(self.file)


def _checkpoint(file: Path) -> None:
    """Move what the -wal holds into the file, while others write on."""
    address = f"{file.absolute().as_uri()}?mode=rw"  # not made anew where it has been removed
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _row(record: ServedRequest) -> tuple[object, ...]:
    """Its columns, times counted from t0."""
    values = []
    for name in COLUMNS:
        value = getattr(record, name)
        if value is not None and name in _TIMES:
            value -= record.t0
        values.append(value)
    return tuple(values)


def segments(folder: Path) -> list[Path]:
    """The segments of a folder, the oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def remove_old(folder: Path, retention: Retention) -> None:
    """Remove the oldest segments that nobody writes, until the rest is small and young enough."""
    now = time.time()
    found = []
    for file in segments(folder):
        with suppress(FileNotFoundError):  # another gateway has just removed it
            found.append((file, file.stat()))
    total = sum(status.st_size for _, status in found)
    for file, status in found:
        old = now - status.st_mtime > retention.total_s
        if (old or total > retention.total_bytes) and _remove_unwritten(file):
            total -= status.st_size


def _remove_unwritten(file: Path) -> bool:
    """Remove a segment unless somebody has it open, which SQLite's locks tell."""
    try:
        with closing(sqlite3.connect(file, timeout=0)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        pass  # damaged, so nobody writes it
    _unlink(file)
    return True


def _unlink(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
