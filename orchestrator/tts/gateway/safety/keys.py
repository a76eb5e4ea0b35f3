"""API keys: made once, kept as hashes in the gateway's database, checked in memory.

A key is `tts_` and 256 random bits in hexadecimal. Only its SHA-256 is kept: with that many random
bits nothing slower or salted is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from tts.base.errors import ConfigError
from tts.serving.command.ports import is_loopback

from ..database import database
from .limits import KeyLimits

PREFIX = "tts_"
_LIMITS = ", ".join(field.name for field in fields(KeyLimits))
_VALID = "revoked IS NULL AND (expires IS NULL OR expires > ?)"
_COLUMNS = f"id, name, created, revoked, expires, models, created_by, revoked_by, {_LIMITS}"


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

    def is_valid(self, now: float) -> bool:
        """Whether the key is accepted at this Unix time."""
        return self.revoked is None and (self.expires is None or self.expires > now)

    def may_use(self, model: str) -> bool:
        """Whether the key may use the model of this name."""
        return not self.models or any(fnmatchcase(model, each) for each in self.models)


class KeyStore:
    """The keys of a file, as `tts gateway keys` changes them. Raises DatabaseUnusable."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def create(
        self,
        name: str,
        limits: KeyLimits,
        *,
        expires: float | None = None,
        models: Sequence[str] = (),
    ) -> tuple[str, ApiKey]:
        """A new key, which is not kept and can never be shown again, and its record.

        Raises ConfigError if a valid key has this name.
        """
        key = PREFIX + secrets.token_hex(32)
        now = time.time()
        record = ApiKey(
            secrets.token_hex(4), name, limits, now, None, expires, tuple(models), _user()
        )
        with database(self._file) as connection:
            cursor = connection.execute(
                f"INSERT INTO keys ({_COLUMNS}, sha256) SELECT {', '.join('?' * 14)} "
                f"WHERE NOT EXISTS (SELECT * FROM keys WHERE name = ? AND {_VALID})",
                (
                    record.id,
                    name,
                    record.created,
                    record.revoked,
                    record.expires,
                    json.dumps(record.models),
                    record.created_by,
                    record.revoked_by,
                    *astuple(limits),
                    _digest(key),
                    name,
                    now,
                ),
            )
        if not cursor.rowcount:
            there = next(each for each in self.all() if each.name == name and each.is_valid(now))
            raise ConfigError(
                f"There is a key {name!r:.100} already: {there.id}.",
                hint="Give another name, or revoke that key: two of a name cannot be told apart.",
            )
        return key, record

    def all(self) -> list[ApiKey]:
        """Every key, the oldest first, revoked ones too."""
        with database(self._file) as connection:
            return [key for _, key in read_keys(connection)]

    def revoke(self, key: str) -> ApiKey:
        """Make a key invalid, by its id or its name; revoking it again changes nothing.

        Raises ConfigError if there is none, or several valid ones of that name.
        """
        matches = [each for each in self.all() if key in (each.id, each.name)]
        matches = [each for each in matches if each.revoked is None] or matches[-1:]
        if not matches:
            raise ConfigError(f"There is no key {key!r:.100}.", hint="See tts gateway keys list.")
        if len(matches) > 1:
            raise ConfigError(
                f"{len(matches)} keys are named {key!r:.100}: {', '.join(k.id for k in matches)}.",
                hint="Give the id of the one to revoke.",
            )
        with database(self._file) as connection:
            connection.execute(
                "UPDATE keys SET revoked = ?, revoked_by = ? WHERE id = ? AND revoked IS NULL",
                (time.time(), _user(), matches[0].id),
            )
        return next(each for each in self.all() if each.id == matches[0].id)


def read_keys(connection: sqlite3.Connection) -> list[tuple[bytes, ApiKey]]:
    """Every key with its hash, the oldest first."""
    rows = connection.execute(f"SELECT {_COLUMNS}, sha256 FROM keys ORDER BY created, id")
    keys = []
    for key, name, created, revoked, expires, models, *by, digest in rows:
        users, limits = by[:2], KeyLimits(*by[2:])
        may_use = tuple(json.loads(models or "[]"))
        keys.append((digest, ApiKey(key, name, limits, created, revoked, expires, may_use, *users)))
    return keys


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


def _user() -> str:
    """The user whom the system runs this process for, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.getuid())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
