"""What keys have used is kept, added up over gateways, and held against their budgets."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import ConfigError
from tts.gateway.safety import KeyLimits, Limiter, Refusal, Spent
from tts.gateway.safety.usage import SEES_OTHERS_S, UsageBook, read_usage, totals


class Clock:
    def __init__(self, day="2026-11-30"):
        self.now = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()

    def __call__(self):
        return self.now

    def go_to(self, day):
        at = datetime.fromisoformat(f"{day}T00:00:00+00:00").replace(tzinfo=UTC)
        self.now = at.timestamp()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "gateway" / "usage.db"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(file, clock):
    book = UsageBook(file, clock)
    yield book
    book.close()


def test_usage_counts_at_once_and_survives_a_restart(file, clock, book):
    book.add("a", "demo", (10, 5, 3, 100))
    book.add("a", "demo:mcts", (1, 1, 0, 0))
    book.add("b", "demo", (7, 0, 0, 0))
    assert book.spent("a") == Spent(20, 20, 12 * 3600, 12 * 3600)
    book.write()
    assert book.spent("a").today == 20
    book.add("a", "demo", (1, 0, 0, 0))
    book.close()
    again = UsageBook(file, clock)
    assert again.spent("a").month == 21
    assert again.spent("c") == Spent(0, 0, 12 * 3600, 12 * 3600)
    again.close()


def test_days_and_months_end_in_utc(clock, book):
    book.add("a", "demo", (10, 0, 0, 0))
    clock.go_to("2026-12-01")
    assert book.spent("a") == Spent(0, 0, 86_400, 31 * 86_400)
    book.add("a", "demo", (3, 0, 0, 0))
    clock.go_to("2026-12-02")
    assert (book.spent("a").today, book.spent("a").month) == (0, 3)
    book.write()
    assert (book.spent("a").today, book.spent("a").month) == (0, 3)


def test_gateways_see_what_others_have_used(file, clock, book):
    other = UsageBook(file, clock)
    assert other.spent("a").today == 0
    book.add("a", "demo", (10, 0, 0, 0))
    book.write()
    clock.now += SEES_OTHERS_S
    assert other.spent("a").today == 10
    other.add("a", "demo", (5, 0, 0, 0))
    other.close()
    clock.now += SEES_OTHERS_S
    assert book.spent("a").today == 15


def test_what_cannot_be_written_is_kept_and_written_later(file, book, caplog):
    book.add("a", "demo", (10, 0, 0, 0))
    with sqlite3.connect(file, isolation_level=None) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        book.write()
        assert book.spent("a").today == 10
        holder.execute("ROLLBACK")
    holder.close()
    assert "kept in memory" in caplog.text
    book.write()
    (row,) = read_usage(file, "2026-11-30", "2026-11-30")
    assert (row.requests, row.spent) == (1, 10)


def test_nobody_waits_for_what_is_written(book, clock, monkeypatch):
    began, may_end = threading.Event(), threading.Event()
    opened = book._writes.open

    def slow():
        began.set()
        may_end.wait(60)
        return opened()

    monkeypatch.setattr(book._writes, "open", slow)
    book.add("a", "demo", (10, 0, 0, 0))
    assert book.spent("a").today == 10
    with ThreadPoolExecutor() as pool:
        try:
            writing = pool.submit(book.write)
            assert began.wait(60)
            book.add("a", "demo", (5, 0, 0, 0))
            clock.now += SEES_OTHERS_S
            for key, used in (("a", 15), ("new", 0)):
                assert pool.submit(book.spent, key).result(60).today == used
        finally:
            may_end.set()
        writing.result(60)
    assert book.spent("a").today == 15
    clock.now += SEES_OTHERS_S
    assert book.spent("a").today == 15


def test_a_file_that_was_removed_is_made_anew(file, book, caplog):
    book.add("a", "demo", (10, 0, 0, 0))
    book.write()
    for end in ("", "-wal", "-shm"):
        file.with_name(file.name + end).unlink()
    book.add("a", "demo", (1, 0, 0, 0))
    book.write()
    assert "another file" in caplog.text
    assert [row.spent for row in read_usage(file, "2026-01-01", "2026-12-31")] == [1]


def test_a_file_that_is_no_database_is_a_sentence(file, clock):
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"not a database at all, not even a little" * 30)
    with pytest.raises(ConfigError, match="cannot be used"):
        UsageBook(file, clock)
    with pytest.raises(ConfigError, match="cannot be used"):
        read_usage(file, "2026-01-01", "2026-12-31")


def test_totals_add_up_by_what_is_asked(file, book, clock):
    for key, model, tokens in (("a", "x", 1), ("a", "y", 2), ("b", "x", 4)):
        book.add(key, model, (tokens, 0, 0, 0))
    book.write()
    rows = read_usage(file, "2026-11-01", "2026-11-30")
    by_key = [(row.key, row.requests, row.spent) for row in totals(rows, ["key"])]
    assert by_key == [("a", 2, 3), ("b", 1, 4)]
    first = totals(rows, ["model", "day"])[0]
    assert (first.model, first.day, first.key, first.spent) == ("x", "2026-11-30", "", 5)
    (whole,) = totals(rows, [])
    assert (whole.requests, whole.spent) == (3, 7)


@given(
    budget=st.integers(1, 100),
    steps=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.booleans()), max_size=30),
)
def test_a_budget_is_never_exceeded(budget, steps):
    """Requests are admitted with an estimate, end with at most that, in any order."""
    limiter, limits = Limiter(), KeyLimits(tokens_per_day=budget)
    spent, running = 0, []
    for most, used, ends in steps:
        admitted = limiter.admit(
            "k", limits, 0, tokens=most, search=False, spent=Spent(today=spent, day_left_s=60.0)
        )
        if isinstance(admitted, Refusal):
            assert spent + sum(each for _, each, _ in running) + most > budget
            assert admitted.code == "insufficient_quota"
            assert f"{budget:,} tokens per day" in admitted.message
        else:
            running.append((admitted, most, min(most, used)))
        if ends and running:
            admission, _, tokens = running.pop(0)
            admission.end(0, tokens)
            spent += tokens
        assert spent + sum(each for _, each, _ in running) <= budget


def test_a_refusal_says_when_to_come_back():
    limits = KeyLimits(tokens_per_day=100, tokens_per_month=1000)
    spent = Spent(today=80, month=80, day_left_s=3600.0, month_left_s=86_400.0)

    def refused(tokens):
        refusal = Limiter().admit("k", limits, 0, tokens=tokens, search=False, spent=spent)
        assert isinstance(refusal, Refusal)
        return refusal

    assert dict(refused(30).headers)[b"retry-after"] == b"3600"
    assert "or try again in 60m0s." in refused(30).message
    assert b"retry-after" not in dict(refused(101).headers)  # more than any day has
    limiter = Limiter()
    limiter.admit("k", limits, 0, tokens=15, search=False, spent=spent)
    waiting = limiter.admit("k", limits, 0, tokens=15, search=False, spent=spent)
    assert "running requests may use 15" in waiting.message
    assert "when they have ended" in waiting.message
