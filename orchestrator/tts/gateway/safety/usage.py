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
from datetime import UTC, datetime, timedelta
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
        """Of what is in memory; never held while something is written."""
        self._unwritten: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
        self._writing = False
        """Whether the file may have what is in `_unwritten`."""
        self._seen: dict[str, tuple[float, tuple[int, int]]] = {}
        """By key: when the file was asked, and what it said of that day and month, with what was
        written here since."""
        self._reads, self._writes = _Database(file), _Database(file)
        self._complained = False
        try:
            self._reads.open()
            self._writes.open()
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
        with self._lock:
            asked, seen = self._seen.get(key, (float("-inf"), (0, 0)))
            known = _day(asked) == day
            fresh = known and 0 <= now - asked < SEES_OTHERS_S
            if not fresh and not (known and self._writing):
                try:
                    seen = _read(self._reads.open(), key, day)
                except (OSError, sqlite3.Error) as error:
                    self._complain(error)
                self._seen[key] = now, seen
            for (of_day, of_key, _), counts in self._unwritten.items():
                if of_key == key:
                    seen = _more(seen, day, of_day, counts)
        return Spent(*seen, *_left_s(now))

    def write(self) -> None:
        """Write what has not been written."""
        with self._lock:
            writing = {names: list(counts) for names, counts in self._unwritten.items()}
            self._writing = bool(writing)
        if not writing:
            return
        try:
            with self._writes.open() as connection:  # all of it, or none
                connection.executemany(
                    _ADD, [(*names, *counts) for names, counts in writing.items()]
                )
            self._complained = False
        except (OSError, sqlite3.Error) as error:
            self._complain(error)
            writing = {}
        with self._lock:
            self._writing = False
            for (day, key, model), counts in writing.items():
                row = self._unwritten[day, key, model]
                row[:] = [a - b for a, b in zip(row, counts, strict=True)]
                if not any(row):
                    del self._unwritten[day, key, model]
                if key in self._seen:
                    asked, seen = self._seen[key]
                    self._seen[key] = asked, _more(seen, _day(asked), day, counts)

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.write()
        self._reads.close()
        self._writes.close()

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "usage cannot be kept in %s: %s; it is kept in memory until then", self._file, error
            )


class _Database:
    """A connection to the file that is there now; for one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._files: Identity = ()

    def open(self) -> sqlite3.Connection:
        """The connection."""
        if self._connection and identity(self._file) == self._files:
            return self._connection
        if self._connection:
            logger.warning("%s is another file than before: usage goes on there", self._file)
            self.close()
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

    def close(self) -> None:
        """Let go of the file."""
        if self._connection:
            self._connection.close()
            self._connection = None


def _read(connection: sqlite3.Connection, key: str, day: str) -> tuple[int, int]:
    """The tokens of a key on a day, and in its month."""
    today, month = connection.execute(
        f"SELECT coalesce(sum(CASE WHEN day = ?1 THEN {_SPENT} END), 0), "
        f"coalesce(sum({_SPENT}), 0) FROM usage WHERE key = ?2 AND day BETWEEN ?3 AND ?4",
        (day, key, f"{day[:7]}-01", f"{day[:7]}-31"),
    ).fetchone()
    return int(today), int(month)


def _more(spent: tuple[int, int], day: str, of_day: str, counts: Sequence[int]) -> tuple[int, int]:
    """The tokens of a day and of its month, with those of a row of `of_day`."""
    _, prompt, answer, search, _ = counts
    more = prompt + answer + search
    today, month = spent
    return today + more * (of_day == day), month + more * (of_day[:7] == day[:7])


def _day(unix: float) -> str:
    return datetime.fromtimestamp(max(0.0, unix), UTC).strftime("%Y-%m-%d")


def _left_s(unix: float) -> tuple[float, float]:
    """How long this day and this month last yet, seconds, in UTC."""
    now = datetime.fromtimestamp(max(0.0, unix), UTC)
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
