"""API keys: made once, kept as hashes in the gateway's database, checked in memory.

A secret is `tts_` and 256 random bits in hexadecimal, or from a secret store. Only its SHA-256 is
kept: with that many random bits nothing slower or salted is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tts.base.errors import ConfigError
from tts.base.input_files import Unreadable, read_text
from tts.serving.command.ports import is_loopback

from ..database import database, transaction
from .limits import KeyLimits

PREFIX = "tts_"
MIN_SECRET = 32
"""Characters of a secret from elsewhere: no fewer, as a fast hash of it is kept."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored, never with its secret."""

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
    created_by: str | None = None
    """The user of the machine who made it; None in a file of an earlier version."""
    revoked_by: str | None = None
    """The user who revoked it."""
    rotated: float | None = None
    """Unix time of its present secret, if that is not its first."""
    rotated_by: str | None = None
    """The user who rotated it."""
    note: str | None = None
    last_used: float | None = None
    """Unix time of the last request with it, refused ones too."""
    last_client: str | None = None
    """The address that this came from; None if addresses are not kept."""
    grace_ends: float | None = None
    """Unix time until which the secret before the present one is accepted; None: it is not."""
    is_replaced: bool = field(default=False, metadata={"json": False})
    """Whether a gateway has found this by a secret that was replaced."""

    def is_valid(self, now: float) -> bool:
        """Whether the key is accepted at this Unix time."""
        return self.revoked is None and (self.expires is None or self.expires > now)

    def may_use(self, model: str) -> bool:
        """Whether the key may use the model of this name."""
        return not self.models or any(fnmatchcase(model, each) for each in self.models)


_LIMITS = tuple(each.name for each in fields(KeyLimits))
_OWN = tuple(
    each.name for each in fields(ApiKey) if each.name not in ("limits", "grace_ends", "is_replaced")
)
_GRACE = "SELECT max(expires) FROM replaced_secrets WHERE key = id"
_SELECT = f"SELECT {', '.join((*_OWN, *_LIMITS))}, ({_GRACE}), sha256 FROM keys"
NOTE_USE = "UPDATE keys SET last_used = ?, last_client = ? WHERE id = ?"


class KeyStore:
    """The keys of a file, as `tts gateway keys` changes them. Raises DatabaseUnusable.

    A key is named by its id or its name. A secret that is given comes from elsewhere, such as a
    secret store; else a new one is made, which is not kept and can never be shown again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def create(
        self,
        name: str,
        limits: KeyLimits,
        *,
        expires: float | None = None,
        models: Sequence[str] = (),
        note: str | None = None,
        secret: str | None = None,
    ) -> tuple[str, ApiKey]:
        """The secret of a new key, and its record.

        Raises ConfigError if a valid key has this name, or this secret, and for a name that a table
        or a command line cannot hold.
        """
        if not name.isprintable() or not re.fullmatch(r"(?!-)(\S|\S.{0,98}\S)", name):
            raise ConfigError(
                f"{name!r:.60} is no name for a key.",
                hint="Give 1 to 100 printable characters without - or a space at the beginning.",
            )
        secret = secret or _new_secret()
        key, now, models = secrets.token_hex(4), time.time(), tuple(models)
        record = ApiKey(
            key, name, limits, now, None, expires, models, created_by=_user(), note=note
        )
        with database(self._file) as connection, transaction(connection):
            _require_free(connection, name)
            _require_new(connection, _digest(secret))
            columns = _columns(record) | {"sha256": _digest(secret)}
            connection.execute(
                f"INSERT INTO keys ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                tuple(columns.values()),
            )
        return secret, record

    def all(self) -> list[ApiKey]:
        """Every key, the oldest first, revoked ones too."""
        with database(self._file) as connection:
            return [_key(row) for row in connection.execute(f"{_SELECT} ORDER BY created, id")]

    def revoke(self, key: str) -> ApiKey:
        """Make a key invalid, once for all; ConfigError unless it is one."""
        record = self._named(key)
        if record.revoked is not None:
            return record
        with database(self._file) as connection:
            return _update(connection, record, revoked=time.time(), revoked_by=_user())

    def rotate(
        self, key: str, *, grace_s: float = 0.0, secret: str | None = None
    ) -> tuple[str, ApiKey]:
        """The new secret of a key, whose name, limits and use stay; with its record.

        The secret before stays valid for the grace period, and an earlier one no longer. Raises
        ConfigError as `change` does, and for a secret that a key has.
        """
        secret, record, now = secret or _new_secret(), self.changeable(key), time.time()
        with database(self._file) as connection, transaction(connection):
            _require_new(connection, _digest(secret))
            _limit_grace(connection, record.id, now)
            connection.execute(
                "INSERT INTO replaced_secrets SELECT sha256, id, ?, ? FROM keys WHERE id = ?",
                (now, now + grace_s, record.id),
            )
            columns = {"sha256": _digest(secret), "rotated": now, "rotated_by": _user()}
            return secret, _update(connection, record, **columns)

    def change(self, key: str, *, grace_s: float | None = None, **changes: Any) -> ApiKey:
        """A key with some fields of its record or of its limits changed.

        `grace_s` is how much longer its replaced secret stays valid, at most. Raises ConfigError if
        there is no such key, several valid ones of that name, or it is revoked.
        """
        record, now = self.changeable(key), time.time()
        with database(self._file) as connection, transaction(connection):
            if "expires" in changes and replace(record, expires=changes["expires"]).is_valid(now):
                _require_free(connection, record.name, but=record.id)
            if grace_s is not None:
                _limit_grace(connection, record.id, now + grace_s)
            return _update(connection, record, **changes)

    def _named(self, key: str) -> ApiKey:
        """The key of this id or name; of several the one that is not revoked, else the last."""
        keys = self.all()
        matches = [each for each in keys if each.id == key] or [k for k in keys if k.name == key]
        matches = [each for each in matches if each.revoked is None] or matches[-1:]
        if not matches:
            raise ConfigError(f"There is no key {key!r:.100}.", hint="See tts gateway keys list.")
        if len(matches) > 1:
            raise ConfigError(
                f"{len(matches)} keys are named {key!r:.100}: {', '.join(k.id for k in matches)}.",
                hint="Give the id of the one that is meant.",
            )
        return matches[0]

    def changeable(self, key: str) -> ApiKey:
        """The key of this id or name; raises ConfigError as `change` does."""
        record = self._named(key)
        if record.revoked is not None:
            raise ConfigError(f"The key {record.id} ({record.name:.100}) is revoked.")
        return record


def _update(connection: sqlite3.Connection, key: ApiKey, **columns: Any) -> ApiKey:
    if "models" in columns:
        columns["models"] = json.dumps(columns["models"])
    if columns:
        assignments = ", ".join(f"{name} = ?" for name in columns)
        statement = f"UPDATE keys SET {assignments} WHERE id = ?"
        connection.execute(statement, (*columns.values(), key.id))
    return _key(connection.execute(f"{_SELECT} WHERE id = ?", (key.id,)).fetchone())


def _limit_grace(connection: sqlite3.Connection, key: str, end: float) -> None:
    """Have the replaced secrets of a key accepted until this Unix time at most."""
    statement = "UPDATE replaced_secrets SET expires = min(expires, ?) WHERE key = ?"
    connection.execute(statement, (end, key))


def _columns(key: ApiKey) -> dict[str, Any]:
    own = {name: getattr(key, name) for name in _OWN}
    return {**own, "models": json.dumps(key.models), **asdict(key.limits)}


def _key(row: Sequence[Any]) -> ApiKey:
    own = dict(zip(_OWN, row, strict=False))
    own["models"] = tuple(json.loads(own["models"] or "[]"))
    limits, grace_ends = KeyLimits(*row[len(_OWN) : -2]), row[-2]
    if grace_ends is not None and own["expires"] is not None:
        grace_ends = min(grace_ends, own["expires"])
    if grace_ends is not None and grace_ends <= time.time():
        grace_ends = None
    return ApiKey(**own, limits=limits, grace_ends=grace_ends)


def _require_free(connection: sqlite3.Connection, name: str, but: str = "") -> None:
    """Raise ConfigError if a valid key other than `but` has this name, or any has it as its id."""
    valid = "revoked IS NULL AND (expires IS NULL OR expires > ?)"
    query = f"SELECT id FROM keys WHERE id != ? AND (id = ? OR name = ? AND {valid})"
    if row := connection.execute(query, (but, name, name, time.time())).fetchone():
        raise ConfigError(
            f"There is a key {name!r:.100} already: {row[0]}.",
            hint="Give another name, or revoke that key: two of a name cannot be told apart.",
        )


def _require_new(connection: sqlite3.Connection, digest: bytes) -> None:
    """Raise ConfigError if any key has the secret of this hash, or had it before."""
    query = "SELECT id, sha256 FROM keys UNION ALL SELECT key, sha256 FROM replaced_secrets"
    query = f"SELECT id FROM ({query}) WHERE sha256 = ?"
    if row := connection.execute(query, (digest,)).fetchone():
        raise ConfigError(
            f"The key {row[0]} has, or had, this very secret.", hint="Take another secret."
        )


def read_secrets(connection: sqlite3.Connection) -> dict[bytes, ApiKey]:
    """The keys that are not revoked, by the hashes of their secrets.

    A secret that was replaced has a key that expires with the grace period.
    """
    keys = {row[-1]: _key(row) for row in connection.execute(f"{_SELECT} WHERE revoked IS NULL")}
    valid = {key.id: key for key in keys.values()}
    query = "SELECT sha256, key, replaced, expires FROM replaced_secrets"
    for digest, key, replaced, expires in connection.execute(query):
        if record := valid.get(key):
            ends = min(expires, float("inf") if record.expires is None else record.expires)
            keys[digest] = replace(record, expires=ends, rotated=replaced, is_replaced=True)
    return keys


def key_names(connection: sqlite3.Connection) -> dict[str, str]:
    """The names of all keys by their ids."""
    return dict(connection.execute("SELECT id, name FROM keys"))


class Keyring:
    """Who may use a running gateway. Raises DatabaseUnusable while that is not known."""

    def __init__(self, keys: Callable[[], Mapping[bytes, ApiKey]]) -> None:
        """`keys` gives the keys that are not revoked, by their hashes."""
        self._keys = keys
        self._required = False

    @property
    def required(self) -> bool:
        """Whether a request needs a key: from the first valid key on, even if that is revoked."""
        self._required = self._required or bool(self._keys())
        return self._required

    def find(self, key: str) -> ApiKey | None:
        """The key that a client has sent, unless it is revoked, or None.

        It is looked up by its hash, which no client can choose: the time that takes tells nothing.
        """
        return self._keys().get(_digest(key))

    def require_for(self, host: str) -> None:
        """Raise ConfigError if `host` can be reached from elsewhere and there is no key yet."""
        if not is_loopback(host) and not self.required:
            raise ConfigError(
                f"The gateway would listen on {host}, where other machines reach it, and there are "
                "no keys.",
                hint="Make one with tts gateway keys create NAME, or listen on 127.0.0.1.",
            )
        self._required = self._required or not is_loopback(host)


def read_secret(file: Path) -> str:
    """A secret that a secret store has put into a file; raises ConfigError."""
    try:
        secret = read_text(file, 4096).strip()
    except (OSError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"The secret in {file} cannot be read: {reason}.") from error
    if len(secret) < MIN_SECRET or not re.fullmatch("[!-~]+", secret):
        raise ConfigError(
            f"{file} must hold {MIN_SECRET} or more printable ASCII characters without spaces.",
            hint="Such as those of: openssl rand -hex 32",
        )
    return secret


def _new_secret() -> str:
    return PREFIX + secrets.token_hex(32)


def _user() -> str:
    """The user whom the system runs this process for, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.getuid())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
