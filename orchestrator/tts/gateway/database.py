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
    **dict.fromkeys(("created_by", "revoked_by", "rotated_by", "note", "last_client"), "TEXT"),
    **dict.fromkeys(("rotated", "last_used"), "REAL"),
}
"""Columns of `keys` that a file of 0.2.0 lacks. It names its columns there, and in no other table:
what else is new has tables of its own, so that 0.2.0 can use the file again."""


_REPLACED_SECRETS = """
CREATE TABLE IF NOT EXISTS replaced_secrets (
    sha256 BLOB PRIMARY KEY,
    key TEXT NOT NULL,
    replaced REAL NOT NULL,
    expires REAL NOT NULL
) WITHOUT ROWID
"""


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
        for table in (_KEYS, _REPLACED_SECRETS, *tables):
            connection.execute(table)
        if _lacking(connection):
            with transaction(connection):  # other programs upgrade it as well
                for column in _lacking(connection):
                    connection.execute(f"ALTER TABLE keys ADD COLUMN {column} {_ADDED[column]}")
    except BaseException:
        connection.close()
        raise
    return connection


def _lacking(connection: sqlite3.Connection) -> list[str]:
    present = {row[1] for row in connection.execute("PRAGMA table_info(keys)")}
    return [column for column in _ADDED if column not in present]


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


@contextmanager
def read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing, to a file that is named; raises DatabaseUnusable."""
    try:
        file.stat()
        address = f"{file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, timeout=WAIT_S, uri=True)) as connection:
            yield connection
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else error
        raise DatabaseUnusable(
            f"{file} cannot be read as a gateway's database: {reason}.",
            hint="Name one, such as a file that tts gateway backup has made.",
        ) from error


def backup(file: Path, to: Path) -> int:
    """Copy a database, also while gateways use it, into a new file that its owner alone may read.

    Gives the number of keys in it. Raises ConfigError if there is nothing to copy, or `to` cannot
    be made or is there already.
    """
    if not file.exists():
        raise ConfigError(f"There is no {file} to copy.", hint="It is made with the first key.")
    with database(file) as connection:
        try:
            os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(to)) as copy:
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a -wal beside it
                return int(copy.execute("SELECT count(*) FROM keys").fetchone()[0])
        except FileExistsError as error:
            raise ConfigError(f"{to} is there already.", hint="Name a file that is new.") from error
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                to.unlink()
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"The copy {to} cannot be made: {reason}.") from error


def unusable(file: Path, error: Exception) -> DatabaseUnusable:
    """The error of a file that cannot be used."""
    name = getattr(error, "sqlite_errorname", "")
    disk = isinstance(error, OSError) or name.startswith(("SQLITE_FULL", "SQLITE_IOERR"))
    return DatabaseUnusable(
        f"The keys, usage and requests in {file} cannot be used: {error}.",
        hint="Free some space on its disk, or correct what else is wrong with that."
        if disk
        else "Restore a backup (docs/guides/gateway.md#backup-restore-upgrade). Without one, "
        "remove the file and its -wal and -shm: all keys are gone then.",
    )


def identity(file: Path) -> Identity:
    """Device and inode of a database, its -wal and its -shm; None for what is not there."""
    return tuple(_file(f"{file}{end}") for end in ("", "-wal", "-shm"))


def _file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (asked for a hundred times a second)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
