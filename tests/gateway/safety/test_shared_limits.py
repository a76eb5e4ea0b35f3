"""Gateways that share their limits admit together what one alone would."""

import subprocess
import sys

import pytest

from tts.build.errors import ConfigError
from tts.gateway.openai.errors import api_error
from tts.gateway.safety import Admission, KeyLimits, LimitsUnusable, Refusal, SharedLimiter, Spent
from tts.gateway.safety.shared_limits import GONE_AFTER_S

SECOND = 10**9


class Clock:
    def __init__(self):
        self.ns = 1_800_000_000 * SECOND

    def __call__(self):
        return self.ns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "gateway" / "limits.db"


@pytest.fixture
def both(file, clock):
    both = SharedLimiter(file, clock), SharedLimiter(file, clock)
    yield both
    for limiter in both:
        limiter.close()


def admit(limiter, limits, tokens=1, *, search=False, **fields):
    return limiter.admit("k", limits, limiter.clock(), tokens=tokens, search=search, **fields)


def admitted(limiters, limits, count, **fields):
    """How many of so many requests are admitted, asked in turn."""
    asked = [admit(limiters[n % len(limiters)], limits, **fields) for n in range(count)]
    return sum(isinstance(each, Admission) for each in asked)


def test_requests_and_tokens_per_minute_hold_for_both_together(both, clock):
    assert admitted(both, KeyLimits(requests_per_minute=6), 20) == 6
    clock.ns += 20 * SECOND
    assert admitted(both[::-1], KeyLimits(requests_per_minute=6), 20) == 2
    few = KeyLimits(tokens_per_minute=100)
    first = admit(both[0], few, 60)
    assert isinstance(admit(both[1], few, 60), Refusal)
    first.end(clock(), 10)
    first.end(clock(), 10)  # once
    second = admit(both[1], few, 60)
    assert dict(second.headers)[b"x-ratelimit-remaining-tokens"] == b"30"


def test_searches_and_budgets_count_what_runs_elsewhere(both, clock):
    one = KeyLimits(concurrent_searches=1)
    running = admit(both[0], one, search=True)
    assert isinstance(admit(both[1], one, search=True), Refusal)
    running.end(clock(), 1)
    assert isinstance(admit(both[1], one, search=True), Admission)
    budget = KeyLimits(tokens_per_day=100)
    admit(both[0], budget, 70)
    assert isinstance(admit(both[1], budget, 40, spent=Spent(0, 0, 60.0, 60.0)), Refusal)


def test_a_gateway_that_is_gone_gives_back_what_it_held(both, clock):
    one = KeyLimits(concurrent_searches=1)
    admit(both[0], one, search=True)
    clock.ns += round((GONE_AFTER_S - 1) * SECOND)
    both[0].confirm()
    clock.ns += 2 * SECOND
    assert isinstance(admit(both[1], one, search=True), Refusal)
    clock.ns += round(GONE_AFTER_S * SECOND)
    assert isinstance(admit(both[1], one, search=True), Admission)


def test_one_that_is_closed_gives_it_back_at_once(file, clock, both):
    one = KeyLimits(concurrent_searches=1)
    third = SharedLimiter(file, clock)
    admit(third, one, search=True)
    assert isinstance(admit(both[0], one, search=True), Refusal)
    third.close()
    assert isinstance(admit(both[0], one, search=True), Admission)


def test_a_clock_that_was_set_back_delays_nobody_for_longer_than_a_minute(both, clock):
    limits = KeyLimits(requests_per_minute=1)
    admit(both[0], limits)
    clock.ns -= 3600 * SECOND
    assert isinstance(admit(both[1], limits), Refusal)
    clock.ns += 61 * SECOND
    assert isinstance(admit(both[1], limits), Admission)


def test_keys_without_limits_do_not_touch_the_file(both, file):
    file.write_bytes(b"no database")
    assert isinstance(admit(both[0], KeyLimits()), Admission)


def test_nobody_is_admitted_while_the_file_cannot_be_used_and_ends_are_not_lost(both, file, clock):
    one = KeyLimits(concurrent_searches=1)
    running = admit(both[0], one, search=True)
    moved = [(each, each.with_name(f"moved{each.name}")) for each in file.parent.iterdir()]
    for there, away in moved:
        there.rename(away)
    file.mkdir()
    with pytest.raises(LimitsUnusable, match=r"limits\.db"):
        admit(both[0], one, search=True)
    running.end(clock(), 1)
    file.rmdir()
    for there, away in moved:
        away.rename(there)
    assert isinstance(admit(both[0], one, search=True), Admission)


def test_who_asks_then_is_told_so():
    told = api_error(LimitsUnusable("secret path"))
    assert (told.status, told.code) == (503, "limits_unusable")
    assert "secret" not in told.message


def test_a_file_that_is_no_database_is_a_sentence(file):
    file.parent.mkdir()
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigError, match="cannot be used"):
        SharedLimiter(file)


PROCESS = """
import sys
from pathlib import Path
from tts.gateway.safety import Admission, KeyLimits, SharedLimiter
limiter = SharedLimiter(Path(sys.argv[1]), lambda: 1_800_000_000 * 10**9)
limits = KeyLimits(requests_per_minute=50)
asked = [limiter.admit("k", limits, limiter.clock(), tokens=1, search=False) for _ in range(100)]
print(sum(isinstance(each, Admission) for each in asked))
"""


def test_processes_that_ask_at_once_get_no_more_than_one_would(file):
    words = [sys.executable, "-c", PROCESS, str(file)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(each.communicate(timeout=60)[0]) for each in running) == 50
