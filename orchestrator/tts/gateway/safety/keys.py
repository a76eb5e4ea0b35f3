"""API keys: made once, kept as hashes in a SQLite file, checked in memory.

    <home>/gateway/keys.db     mode 0600, in a folder of mode 0700; WAL, so that a gateway reads
                               while `tts gateway keys` writes

A reader cannot write: a connection that outlives its file must not put old pages into the file
that has replaced it.

A key is `tts_` and 256 random bits in hexadecimal. Only its SHA-256 is kept: with that many random
bits nothing slower or salted is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from tts.build import paths
from tts.build.errors import ConfigError
from tts.build.private import private_folder
from tts.serving.command.ports import is_loopback

from ..database_files import Identity, identity
from .limits import KeyLimits

logger = logging.getLogger(__name__)

PREFIX = "tts_"
SEES_CHANGES_S = 0.2
"""How long a gateway may go on with what it has read: a key revoked is refused after that."""
_INDEXED = 8
"""Bytes of a hash by which a key is found."""

_TABLE = """
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
_ADDED = (
    ("tokens_per_day", "INTEGER"),
    ("tokens_per_month", "INTEGER"),
    ("expires", "REAL"),
    ("models", "TEXT"),
)
"""Columns that a file may lack which an earlier version made."""
_LIMITS = ", ".join(field.name for field in fields(KeyLimits))
_VALID = "revoked IS NULL AND (expires IS NULL OR expires > ?)"
_COLUMNS = f"id, name, created, revoked, expires, models, {_LIMITS}"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is stored of a key; never its secret."""

    id: str
    """Public: what logs and `tts gateway keys` call it."""
    name: str
    limits: KeyLimits
    created: float
    """Unix time."""
    revoked: float | None
    """Unix time; None while it is valid."""
    expires: float | None = None
    """Unix time after which it is refused; None: never."""
    models: tuple[str, ...] = ()
    """Names of models that it may use, `*` for any characters; none: all."""

    def is_valid(self, now: float) -> bool:
        """Whether it lets anybody in at this Unix time."""
        return self.revoked is None and (self.expires is None or self.expires > now)

    def may_use(self, model: str) -> bool:
        """Whether it may use the model of this name."""
        return not self.models or any(fnmatchcase(model, each) for each in self.models)


class KeysUnusable(ConfigError):
    """The file of keys cannot be used."""


def keys_file() -> Path:
    """Where keys are kept when nobody says otherwise."""
    return paths.gateway_dir() / "keys.db"


class KeyStore:
    """The file of keys, as `tts gateway keys` changes it and a gateway reads it.

    A file that replaces it is read at the next look. Raises KeysUnusable.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._reader: sqlite3.Connection | None = None
        self._read: Identity = ()
        self._openings = 0
        with self._usable(), self._writing():
            pass

    def close(self) -> None:
        """Let go of the file."""
        if self._reader:
            self._reader.close()
            self._reader = None
        self._read = ()

    def create(
        self,
        name: str,
        limits: KeyLimits,
        *,
        expires: float | None = None,
        models: Sequence[str] = (),
    ) -> tuple[str, ApiKey]:
        """A new key, which is not kept and can never be shown again, and what is known of it.

        Raises ConfigError if a valid key has this name.
        """
        key = PREFIX + secrets.token_hex(32)
        now = time.time()
        made = ApiKey(secrets.token_hex(4), name, limits, now, None, expires, tuple(models))
        with self._usable(), self._writing() as connection:
            done = connection.execute(
                f"INSERT INTO keys ({_COLUMNS}, sha256) SELECT {', '.join('?' * 12)} "
                f"WHERE NOT EXISTS (SELECT * FROM keys WHERE name = ? AND {_VALID})",
                (
                    made.id,
                    name,
                    made.created,
                    made.revoked,
                    made.expires,
                    json.dumps(made.models),
                    *astuple(limits),
                    _digest(key),
                    name,
                    now,
                ),
            )
        if not done.rowcount:
            there = next(each for each in self.all() if each.name == name and each.is_valid(now))
            raise ConfigError(
                f"There is a key {name!r:.100} already: {there.id}.",
                hint="Give another name, or revoke that key: two of a name cannot be told apart.",
            )
        return key, made

    def all(self) -> list[ApiKey]:
        """Every key, the oldest first, revoked ones too."""
        return [key for _, key in self._rows()]

    def revoke(self, key: str) -> ApiKey:
        """Make a key invalid, by its id or its name; revoking it again changes nothing.

        Raises ConfigError if there is none, or several valid ones of that name.
        """
        found = [each for each in self.all() if key in (each.id, each.name)]
        chosen = [each for each in found if each.revoked is None] or found[-1:]
        if not chosen:
            raise ConfigError(f"There is no key {key!r:.100}.", hint="See tts gateway keys list.")
        if len(chosen) > 1:
            raise ConfigError(
                f"{len(chosen)} keys are named {key!r:.100}: {', '.join(k.id for k in chosen)}.",
                hint="Give the id of the one to revoke.",
            )
        with self._usable(), self._writing() as connection:
            connection.execute(
                "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL",
                (time.time(), chosen[0].id),
            )
        return next(each for each in self.all() if each.id == chosen[0].id)

    def version(self) -> tuple[int, int]:
        """A value that changes when the file has been changed or replaced."""
        with self._usable():
            (found,) = self._reading().execute("PRAGMA data_version").fetchone()
        return self._openings, int(found)

    def valid(self) -> list[tuple[bytes, ApiKey]]:
        """The keys that are not revoked, each with its SHA-256."""
        return [(digest, key) for digest, key in self._rows() if key.revoked is None]

    def _rows(self) -> list[tuple[bytes, ApiKey]]:
        with self._usable():
            rows = (
                self._reading()
                .execute(f"SELECT {_COLUMNS}, sha256 FROM keys ORDER BY created, id")
                .fetchall()
            )
        return [
            (
                digest,
                ApiKey(
                    key,
                    name,
                    KeyLimits(*limits),
                    created,
                    revoked,
                    expires,
                    tuple(json.loads(models or "[]")),
                ),
            )
            for key, name, created, revoked, expires, models, *limits, digest in rows
        ]

    def _reading(self) -> sqlite3.Connection:
        """The connection that reads the file that is there now."""
        if self._reader and identity(self._file) == self._read:
            return self._reader
        if self._reader:
            logger.warning("%s is another file than before: it is read anew", self._file)
        self.close()
        with self._writing():  # where there was none, one without keys is made
            pass
        there = identity(self._file)[:1]
        uri = f"{self._file.absolute().as_uri()}?mode=ro"
        self._reader = sqlite3.connect(
            uri, uri=True, timeout=5, isolation_level=None, check_same_thread=False
        )
        self._reader.execute("SELECT count(*) FROM keys")  # opens all three files
        found = identity(self._file)
        self._read = found if found[:1] == there else ()  # replaced meanwhile: see the next look
        self._openings += 1
        return self._reader

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A connection that writes; the file is there, and its owner's alone."""
        private_folder(self._file.parent)
        with closing(sqlite3.connect(self._file, timeout=5, isolation_level=None)) as connection:
            self._file.chmod(0o600)  # SQLite makes it by the umask; -wal and -shm take its mode
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(_TABLE)
            there = {column[1] for column in connection.execute("PRAGMA table_info(keys)")}
            for name, kind in _ADDED:
                if name not in there:
                    connection.execute(f"ALTER TABLE keys ADD COLUMN {name} {kind}")
            yield connection

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise KeysUnusable(
                f"The keys in {self._file} cannot be used: {error}.",
                hint="Correct that, or remove the file and its -wal and -shm: all keys are gone "
                "then.",
            ) from error


class Keyring:
    """The valid keys, in memory, as a running gateway asks for them.

    Changes by `tts gateway keys` are seen within `SEES_CHANGES_S`; while the file cannot be read
    nobody is let in. `clock` is monotonic, in seconds.
    """

    def __init__(self, store: KeyStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._version = store.version()
        self._read_at = clock()
        self._keys = _by_hash(store)
        self._required = bool(self._keys)

    @property
    def required(self) -> bool:
        """Whether a request needs a key: from the first valid key on, even if that is revoked."""
        self._refresh()
        return self._required

    def find(self, key: str) -> ApiKey | None:
        """The valid key that a client has sent, or None. Raises ConfigError as the store does.

        A part of the hash finds the only key that it can be; the rest is compared in constant time.
        """
        self._refresh()
        digest = _digest(key)
        stored, found = self._keys.get(digest[:_INDEXED], (b"", None))
        return found if hmac.compare_digest(stored, digest) else None

    def require_for(self, host: str) -> None:
        """Raise ConfigError if `host` can be reached from elsewhere and there is no key yet."""
        if not is_loopback(host) and not self.required:
            raise ConfigError(
                f"The gateway would listen on {host}, where other machines reach it, and there are "
                "no keys.",
                hint="Make one with tts gateway keys create NAME, or listen on 127.0.0.1.",
            )
        self._required = self._required or not is_loopback(host)

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._read_at < SEES_CHANGES_S:
            return
        version = self._store.version()
        if version != self._version:
            self._keys = _by_hash(self._store)
            self._version = version
            self._required = self._required or bool(self._keys)
        self._read_at = now


def _by_hash(store: KeyStore) -> dict[bytes, tuple[bytes, ApiKey]]:
    return {digest[:_INDEXED]: (digest, key) for digest, key in store.valid()}


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
