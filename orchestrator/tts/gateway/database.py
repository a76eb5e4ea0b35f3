"""The SQLite file of a user's gateways: API keys, usage of each key, and the log of requests.

    <home>/gateway/gateway.db    mode 0600, in a folder of mode 0700; WAL: others read and write
                                 while a gateway runs

SQLite's locks belong to a process and a file: whoever opens and closes a database's file beside
SQLite, in any way, drops the locks of the whole process, and the next program that uses it believes
itself alone. So the files are asked for by name, here and everywhere, and never opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tts.base import paths
from tts.base.errors import ConfigError
from tts.base.user_paths import private_folder

WAIT_S = 5.0
"""How long another program's write is waited for."""
Identity = tuple["tuple[int, int] | None", ...]
_KEYS = """
CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 BLOB NOT NULL UNIQUE,
    created REAL NOT NULL,
    revoked REAL,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    concurrent_searches INTEGER,
    tokens_per_day INTEGER,
    tokens_per_month INTEGER,
    expires REAL,
    models TEXT
)
"""
_ADDED = {
    "keys": {
        **dict.fromkeys(("created_by", "revoked_by", "rotated_by", "note", "last_client"), "TEXT"),
        **dict.fromkeys(("rotated", "old_expires", "last_used"), "REAL"),
        "old_sha256": "BLOB",
    },
    "requests": {"client": "TEXT"},
}
"""Columns that a file of 0.2.0 lacks."""


class DatabaseUnusable(ConfigError):
    """The file cannot be read or written."""


def database_file() -> Path:
    """The file when nobody names another."""
    return paths.gateway_dir() / "gateway.db"


def connected(file: Path, *tables: str) -> sqlite3.Connection:
    """A connection to a file that is made where there is none, as are the tables (CREATE ...)."""
    private_folder(file.parent)
    connection = sqlite3.connect(
        file, timeout=WAIT_S, isolation_level=None, check_same_thread=False
    )
    try:
        file.chmod(0o600)  # SQLite makes it by the umask; -wal and -shm take its mode
        connection.execute("PRAGMA journal_mode=WAL")
        for table in (_KEYS, *tables):
            connection.execute(table)
        if any(_lacking(connection)):
            with transaction(connection):  # other programs upgrade it as well
                for table, column, kind in list(_lacking(connection)):
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    except BaseException:
        connection.close()
        raise
    return connection


def _lacking(connection: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    """Table, name and type of each column that this version has and the file has not."""
    for table, columns in _ADDED.items():
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for column, kind in columns.items() if there else ():
            if column not in there:
                yield table, column, kind


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that nobody else writes in: all of it is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def database(file: Path, *tables: str) -> Iterator[sqlite3.Connection]:
    """A connection for as long as the block lasts. Raises DatabaseUnusable, in the block too."""
    try:
        with closing(connected(file, *tables)) as connection:
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise unusable(file, error) from error


def backup(file: Path, to: Path) -> None:
    """Copy a database, also while gateways use it, into a new file that its owner alone may read.

    Raises ConfigError if there is nothing to copy, or `to` cannot be made or is there already.
    """
    if not file.exists():
        raise ConfigError(f"There is no {file} to copy.", hint="It is made with the first key.")
    with database(file) as connection:
        try:
            os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(to)) as copy:
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a -wal beside it
        except FileExistsError as error:
            raise ConfigError(f"{to} is there already.", hint="Name a file that is new.") from error
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                to.unlink()
            raise ConfigError(f"The copy {to} cannot be made: {error}.") from error


def unusable(file: Path, error: Exception) -> DatabaseUnusable:
    """The error of a file that cannot be used."""
    full = getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR"))
    return DatabaseUnusable(
        f"The keys, usage and requests in {file} cannot be used: {error}.",
        hint="Free some space on its disk, or correct what else is wrong with that."
        if full
        else "Correct that, or remove the file and its -wal and -shm: all keys are gone then.",
    )


def identity(file: Path) -> Identity:
    """Device and inode of a database, its -wal and its -shm; None for what is not there."""
    return tuple(_file(file.with_name(file.name + end)) for end in ("", "-wal", "-shm"))


def _file(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
