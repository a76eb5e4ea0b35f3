"""Use of each key, day by day (UTC), in the database that all gateways of a user share."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import msgspec

from ..database import database

NO_KEY = ""
"""In the place of a key's id where none was needed."""
COUNTS = ("requests", "prompt_tokens", "answer_tokens", "search_tokens", "verifier_tokens")
_SPENT = "prompt_tokens + answer_tokens + search_tokens"
TABLE = (
    "CREATE TABLE IF NOT EXISTS usage (day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, "
    + "".join(f"{name} INTEGER NOT NULL, " for name in COUNTS)
    + "PRIMARY KEY (day, key, model)) WITHOUT ROWID"
)
ADD = "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET " + ", ".join(
    f"{name} = {name} + excluded.{name}" for name in COUNTS
)


class DailyUsage(msgspec.Struct, frozen=True):
    """One key's use of one model on one day; in a sum over them these are empty."""

    day: str
    """YYYY-MM-DD in UTC."""
    key: str
    """The key's id; empty where none was needed, too."""
    model: str
    requests: int
    """Requests that were admitted, however they ended."""
    prompt_tokens: int
    answer_tokens: int
    search_tokens: int
    """Generated, but not part of the answer."""
    verifier_tokens: int

    @property
    def spent_tokens(self) -> int:
        """The tokens that count towards budgets: all but those that the verifier reads."""
        return self.prompt_tokens + self.answer_tokens + self.search_tokens


def read_usage(file: Path, since: str, until: str) -> list[DailyUsage]:
    """The use of the days `since` to `until` (YYYY-MM-DD), in order; raises DatabaseUnusable."""
    with database(file, TABLE) as connection:
        rows = connection.execute(
            f"SELECT day, key, model, {', '.join(COUNTS)} FROM usage "
            "WHERE day BETWEEN ? AND ? ORDER BY day, key, model",
            (since, until),
        ).fetchall()
    return [DailyUsage(*row) for row in rows]


def totals(rows: Sequence[DailyUsage], by: Sequence[str]) -> list[DailyUsage]:
    """Sums by the fields `by` (day, key, model), in their order; the others are empty."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        counts = groups.setdefault(tuple(getattr(row, name) for name in by), [0] * len(COUNTS))
        for place, name in enumerate(COUNTS):
            counts[place] += getattr(row, name)
    sums = []
    for of, counts in sorted(groups.items()):
        names = dict(zip(by, of, strict=True))
        day, key, model = (names.get(each, "") for each in ("day", "key", "model"))
        sums.append(DailyUsage(day, key, model, *counts))
    return sums


def read_totals(connection: sqlite3.Connection, day: str) -> dict[str, tuple[int, int]]:
    """The tokens of each key that count towards its budgets of a day, and of its month."""
    rows = connection.execute(
        f"SELECT key, total(CASE WHEN day = ? THEN {_SPENT} END), total({_SPENT}) FROM usage "
        "WHERE day BETWEEN ? AND ? GROUP BY key",
        (day, f"{day[:7]}-01", f"{day[:7]}-31"),
    )
    return {key: (int(today), int(month)) for key, today, month in rows}


def with_row(
    tokens: tuple[int, int], day: str, of_day: str, counts: Sequence[int]
) -> tuple[int, int]:
    """The tokens of a day and of its month, with those of a row of `of_day`."""
    _, prompt, answer, search, _ = counts
    more = prompt + answer + search
    today, month = tokens
    return today + more * (of_day == day), month + more * (of_day[:7] == day[:7])


def day_of(unix: float) -> str:
    """The day of a Unix time, in UTC."""
    return _day(max(0, int(unix) // 86_400))


@lru_cache(maxsize=2)
def _day(number: int) -> str:
    return str(date(1970, 1, 1) + timedelta(days=number))


def left_s(unix: float) -> tuple[float, float]:
    """How long this day and this month last yet, seconds, in UTC."""
    now = datetime.fromtimestamp(max(0.0, unix), UTC)
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    first = tomorrow
    while first.day != 1:
        first += timedelta(days=1)
    return (tomorrow - now).total_seconds(), (first - now).total_seconds()
