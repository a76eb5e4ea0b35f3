"""Usage of each key, day by day (UTC), in a SQLite file that all gateways of a user share.

    <home>/gateway/usage.db    mode 0600; WAL

A gateway adds what its requests used to a row in memory, and a thread writes the sums. So a budget
survives a restart, and holds for all gateways together: each looks at what the others have written
before it admits a request, at most once in `SEES_OTHERS_S`. A gateway that is killed loses what
ended in its last 100 ms.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from tts.build import paths
from tts.build.errors import ConfigError
from tts.build.private import private_folder

from ..database_files import Identity, identity
from .limits import Spent

logger = logging.getLogger(__name__)

SEES_OTHERS_S = 0.5
NO_KEY = ""
"""In the place of a key's id where none was needed."""
COUNTS = ("requests", "prompt_tokens", "answer_tokens", "search_tokens", "verifier_tokens")
_SPENT = "prompt_tokens + answer_tokens + search_tokens"
_TABLE = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    answer_tokens INTEGER NOT NULL,
    search_tokens INTEGER NOT NULL,
    verifier_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, key, model)
) WITHOUT ROWID
"""
_ADD = "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET " + ", ".join(
    f"{name} = {name} + excluded.{name}" for name in COUNTS
)


class Usage(msgspec.Struct, frozen=True):
    """One key's use of one model on one day; in a sum over them these are empty."""

    day: str
    """YYYY-MM-DD in UTC."""
    key: str
    """The key's id; empty where none was needed, too."""
    model: str
    requests: int
    """Those that were admitted, however they ended."""
    prompt_tokens: int
    answer_tokens: int
    search_tokens: int
    """Generated, but not part of the answer."""
    verifier_tokens: int

    @property
    def spent(self) -> int:
        """The tokens that count towards budgets: all but those that the verifier reads."""
        return self.prompt_tokens + self.answer_tokens + self.search_tokens


class UsageUnusable(ConfigError):
    """The file of usage cannot be used."""


def usage_file() -> Path:
    """Where usage is kept when nobody says otherwise."""
    return paths.gateway_dir() / "usage.db"


def read_usage(file: Path, since: str, until: str) -> list[Usage]:
    """Usage of the days from `since` to `until`, both included, YYYY-MM-DD; by day, key, model.

    Raises UsageUnusable.
    """
    if not file.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                f"SELECT day, key, model, {', '.join(COUNTS)} FROM usage "
                "WHERE day BETWEEN ? AND ? ORDER BY day, key, model",
                (since, until),
            ).fetchall()
    except sqlite3.Error as error:
        raise _unusable(file, error) from error
    return [Usage(*row) for row in rows]


def totals(rows: Sequence[Usage], by: Sequence[str]) -> list[Usage]:
    """Sums by the fields `by` (day, key, model), in their order; the others are empty."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        counts = found.setdefault(tuple(getattr(row, name) for name in by), [0] * len(COUNTS))
        for place, name in enumerate(COUNTS):
            counts[place] += getattr(row, name)
    sums = []
    for of, counts in sorted(found.items()):
        names = dict(zip(by, of, strict=True))
        day, key, model = (names.get(each, "") for each in ("day", "key", "model"))
        sums.append(Usage(day, key, model, *counts))
    return sums


class UsageBook:
    """A gateway's hold on the file. `add` and `spent` are for the event loop, `write` for a thread.

    `clock` gives Unix time. Raises UsageUnusable if the file cannot be used at first; later what
    cannot be written is kept, and written when it can be.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        """Of what is in memory; never held while the disk is waited for."""
        self._database = threading.Lock()
        """Of the connection, and of what the file says together with what is not written yet."""
        self._unwritten: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
        self._seen: dict[str, tuple[float, tuple[int, int]]] = {}
        """By key: when the file was asked, and what it said of this day and this month."""
        self._connection: sqlite3.Connection | None = None
        self._files: Identity = ()
        self._complained = False
        try:
            with self._database:
                self._open()
        except (OSError, sqlite3.Error) as error:
            raise _unusable(file, error) from error

    def add(self, key: str, model: str, tokens: tuple[int, int, int, int]) -> None:
        """A request has ended that used so many tokens: prompt, answer, search, verifier."""
        with self._lock:
            row = self._unwritten[_day(self._clock()), key, model]
            for place, count in enumerate((1, *tokens)):
                row[place] += count

    def spent(self, key: str) -> Spent:
        """Usage of a key today and this month, including unwritten records."""
        now = self._clock()
        day = _day(now)
        with self._database:
            asked, seen = self._seen.get(key, (float("-inf"), (0, 0)))
            if not 0 <= now - asked < SEES_OTHERS_S or _day(asked) != day:
                try:
                    seen = self._read(key, day)
                except (OSError, sqlite3.Error) as error:
                    self._complain(error)
                self._seen[key] = now, seen
            with self._lock:
                for (of_day, of_key, _), (_, prompt, answer, search, _) in self._unwritten.items():
                    if of_key == key and of_day[:7] == day[:7]:
                        more = prompt + answer + search
                        seen = seen[0] + (more if of_day == day else 0), seen[1] + more
        return Spent(*seen, *_left_s(now))

    def write(self) -> None:
        """Write what has not been written."""
        with self._database:
            with self._lock:
                writing = {names: list(counts) for names, counts in self._unwritten.items()}
            if not writing:
                return
            try:
                with self._open() as connection:  # all of it, or none
                    connection.executemany(
                        _ADD, [(*names, *counts) for names, counts in writing.items()]
                    )
            except (OSError, sqlite3.Error) as error:
                self._complain(error)
                return
            with self._lock:
                for names, counts in writing.items():
                    left = [a - b for a, b in zip(self._unwritten[names], counts, strict=True)]
                    self._unwritten[names] = left
                    if not any(left):
                        del self._unwritten[names]
            self._seen.clear()
            self._complained = False

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.write()
        with self._database:
            if self._connection:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now."""
        if self._connection and identity(self._file) == self._files:
            return self._connection
        if self._connection:
            logger.warning("%s is another file than before: usage goes on there", self._file)
            self._connection.close()
            self._connection = None
        private_folder(self._file.parent)
        # a short wait, as the event loop may wait for it
        connection = sqlite3.connect(self._file, timeout=0.2, check_same_thread=False)
        try:
            self._file.chmod(0o600)  # SQLite makes it by the umask; -wal and -shm take its mode
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_TABLE)
        except BaseException:
            connection.close()
            raise
        self._connection, self._files = connection, identity(self._file)
        return connection

    def _read(self, key: str, day: str) -> tuple[int, int]:
        today, month = (
            self._open()
            .execute(
                f"SELECT coalesce(sum(CASE WHEN day = ?1 THEN {_SPENT} END), 0), "
                f"coalesce(sum({_SPENT}), 0) FROM usage WHERE key = ?2 AND day BETWEEN ?3 AND ?4",
                (day, key, f"{day[:7]}-01", f"{day[:7]}-31"),
            )
            .fetchone()
        )
        return int(today), int(month)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "usage cannot be kept in %s: %s; it is kept in memory until then", self._file, error
            )


def _day(unix: float) -> str:
    return datetime.fromtimestamp(max(0.0, unix), timezone.utc).strftime("%Y-%m-%d")


def _left_s(unix: float) -> tuple[float, float]:
    """How long this day and this month last yet, seconds, in UTC."""
    now = datetime.fromtimestamp(max(0.0, unix), timezone.utc)
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    first = tomorrow
    while first.day != 1:
        first += timedelta(days=1)
    return (tomorrow - now).total_seconds(), (first - now).total_seconds()


def _unusable(file: Path, error: Exception) -> UsageUnusable:
    return UsageUnusable(
        f"The usage in {file} cannot be used: {error}.",
        hint="Correct that, or remove the file and its -wal and -shm: what was used is forgotten.",
    )
