"""What keys have used is kept, added up over gateways, and held against their budgets."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.record import ServedRequest
from tts.gateway.safety.limits import KeyLimits, KeyUsage, Refusal, Spending
from tts.gateway.safety.usage import read_usage, totals


class Clock:
    def __init__(self):
        self.go_to("2026-11-30T12:00")

    def __call__(self):
        return self.now

    def go_to(self, when):
        self.now = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(file, clock):
    book = Ledger(file, clock)
    yield book
    book.close()


def add(book, key, model, tokens):
    """An admitted request of a key has ended that used so many tokens."""
    names = ("prompt_tokens", "answer_tokens", "search_tokens", "verifier_tokens")
    record = ServedRequest(id="r", endpoint="/v1/completions", time=0.0, t0=0.0)
    for name, value in zip(names, tokens, strict=True):
        setattr(record, name, value)
    record.key, record.model = key, model
    book.add(record)


def test_usage_counts_at_once_and_survives_a_restart(file, clock, book):
    add(book, "a", "demo", (10, 5, 3, 100))
    add(book, "a", "demo:mcts", (1, 1, 0, 0))
    add(book, "b", "demo", (7, 0, 0, 0))
    assert book.spending_of("a") == Spending(20, 20, 12 * 3600, 12 * 3600)
    book.write(())
    assert book.spending_of("a").today == 20
    add(book, "a", "demo", (1, 0, 0, 0))
    book.close()
    again = Ledger(file, clock)
    assert again.spending_of("a").month == 21
    assert again.spending_of("c") == Spending(0, 0, 12 * 3600, 12 * 3600)
    again.close()


def test_days_and_months_end_in_utc(clock, book):
    add(book, "a", "demo", (10, 0, 0, 0))
    clock.go_to("2026-12-01")
    assert book.spending_of("a") == Spending(0, 0, 86_400, 31 * 86_400)
    book.write(())
    add(book, "a", "demo", (3, 0, 0, 0))
    book.write(())
    assert (book.spending_of("a").today, book.spending_of("a").month) == (3, 3)
    clock.go_to("2026-12-02")
    for settle in (lambda: None, book.look, lambda: book.write(())):
        settle()
        assert (book.spending_of("a").today, book.spending_of("a").month) == (0, 3)


def test_gateways_see_what_others_have_used(file, clock, book):
    other = Ledger(file, clock)
    assert other.spending_of("a").today == 0
    add(book, "a", "demo", (10, 0, 0, 0))
    book.write(())
    other.look()
    assert other.spending_of("a").today == 10
    add(other, "a", "demo", (5, 0, 0, 0))
    other.close()
    book.look()
    assert book.spending_of("a").today == 15


def test_what_cannot_be_written_is_kept_and_written_later(file, book, caplog, monkeypatch):
    monkeypatch.setattr("tts.gateway.database.WAIT_S", 0.1)
    book.close()
    add(book, "a", "demo", (10, 0, 0, 0))
    with sqlite3.connect(file, isolation_level=None) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        book.write(())
        assert book.spending_of("a").today == 10
        holder.execute("ROLLBACK")
    holder.close()
    assert "kept in memory" in caplog.text
    book.write(())
    (row,) = read_usage(file, "2026-11-30", "2026-11-30")
    assert (row.requests, row.spent_tokens) == (1, 10)


def test_totals_add_up_by_what_is_asked(file, book, clock):
    for key, model, tokens in (("a", "x", 1), ("a", "y", 2), ("b", "x", 4)):
        add(book, key, model, (tokens, 0, 0, 0))
    book.write(())
    rows = read_usage(file, "2026-11-01", "2026-11-30")
    by_key = [(row.key, row.requests, row.spent_tokens) for row in totals(rows, ["key"])]
    assert by_key == [("a", 2, 3), ("b", 1, 4)]
    first = totals(rows, ["model", "day"])[0]
    assert (first.model, first.day, first.key, first.spent_tokens) == ("x", "2026-11-30", "", 5)
    (whole,) = totals(rows, [])
    assert (whole.requests, whole.spent_tokens) == (3, 7)


@given(
    budget=st.integers(1, 100),
    steps=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.booleans()), max_size=30),
)
def test_a_budget_is_never_exceeded(budget, steps):
    """Requests are admitted with an estimate, end with at most that, in any order."""
    usage = KeyUsage(KeyLimits(tokens_per_day=budget))
    spent, running = 0, []
    for most, used, ends in steps:
        spending = Spending(today=spent, day_left_s=60.0)
        admitted = usage.admit(0, tokens=most, search=False, spending=spending)
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
    spent = Spending(today=80, month=80, day_left_s=3600.0, month_left_s=86_400.0)

    def refused(tokens, month=80):
        used = replace(spent, month=month)
        refusal = KeyUsage(limits).admit(0, tokens=tokens, search=False, spending=used)
        assert isinstance(refusal, Refusal)
        return refusal

    assert dict(refused(30).headers)[b"retry-after"] == b"3600"
    assert "or try again after 00:00 UTC." in refused(30).message
    assert b"retry-after" not in dict(refused(101).headers)  # more than any day has
    assert dict(refused(95, month=950).headers)[b"retry-after"] == b"86400"
    assert "1,000 tokens per month" in refused(95, month=950).message
    usage = KeyUsage(limits)
    usage.admit(0, tokens=15, search=False, spending=spent)
    waiting = usage.admit(0, tokens=15, search=False, spending=spent)
    assert "running requests may use 15" in waiting.message
    assert "when they have ended" in waiting.message
