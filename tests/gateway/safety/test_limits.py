"""Limits of keys, and the leaky buckets that keep those per minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.safety import limits as module
from tts.gateway.safety.limits import KeyLimits, Limiter, RateBucket, Refusal, duration

SECOND = 10**9


class Asking:
    """A limiter, and what it says of requests of one key."""

    def __init__(self, **limits):
        self.limiter, self.limits = Limiter(), KeyLimits(**limits)

    def __call__(self, tokens=1, at=0, search=False, key="k"):
        """Whether a request is admitted, what it is told, and its headers."""
        usage = self.limiter.usage_of(key, self.limits)
        found = usage.arrive(at) or usage.admit(at, tokens=tokens, search=search)
        told = {name.decode(): value.decode() for name, value in found.headers}
        return not isinstance(found, Refusal), found, told


def test_headers_tell_what_is_left_after_this_request():
    _, _, headers = Asking(requests_per_minute=60, tokens_per_minute=6000)(tokens=100)
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5900",
        "x-ratelimit-reset-tokens": "1s",
    }


def test_a_refusal_says_when_to_come_back_and_coming_back_then_works():
    ask = Asking(requests_per_minute=40)
    assert all(ask()[0] for _ in range(40))
    admitted, refused, headers = ask()
    assert not admitted
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1500")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert "40 requests per minute" in refused.message
    assert ask(at=1_500_000_000)[0]
    assert ask(key="other")[0]  # keys do not share their limits


def test_a_request_is_charged_when_it_comes_and_its_tokens_when_it_is_admitted():
    ask = Asking(requests_per_minute=3, tokens_per_minute=10)
    assert ask(tokens=10)[0]
    for limit in ("10 tokens", "10 tokens", "3 requests", "3 requests"):
        admitted, refused, _ = ask(tokens=10)
        assert not admitted
        assert f"{limit} per minute" in refused.message
    assert ask(tokens=10, at=60 * SECOND)[2]["x-ratelimit-remaining-requests"] == "2"


def test_a_request_larger_than_the_limit_gets_no_time_to_come_back():
    ask = Asking(tokens_per_minute=100)
    assert ask(tokens=100)[0]
    admitted, _, headers = ask(tokens=101)
    assert not admitted
    assert "retry-after" not in headers


def test_true_usage_takes_the_place_of_the_estimate_once():
    ask = Asking(tokens_per_minute=100)
    _, admission, _ = ask(tokens=90)
    assert not ask(tokens=30)[0]
    admission.end(0, tokens=20)
    admission.end(0, tokens=20)
    assert ask(tokens=30)[2]["x-ratelimit-remaining-tokens"] == "50"


def test_searches_are_limited_by_how_many_run():
    ask = Asking(concurrent_searches=1)
    _, first, _ = ask(search=True)
    admitted, _, headers = ask(search=True)
    assert not admitted
    assert "retry-after" not in headers
    assert ask()[0]
    first.end(1, tokens=1)
    first.end(1, tokens=1)
    assert [ask(search=True, at=1)[0] for _ in range(2)] == [True, False]


def test_without_limits_nothing_is_refused_or_said():
    ask = Asking()
    for _ in range(100):
        admitted, admission, headers = ask(tokens=10**9, search=True)
        assert (admitted, headers) == (True, {})
        admission.end(0, tokens=1)


def test_wrong_keys_count_by_address_of_which_the_latest_are_known(monkeypatch):
    monkeypatch.setattr(module, "MAX_ADDRESSES", 3)
    limiter = Limiter()

    def rejected(address, count=module.WRONG_KEYS_PER_MINUTE):
        return [limiter.reject(address, 0) is None for _ in range(count)]

    for first, same in (("192.0.2.7", "192.0.2.7"), ("2001:db8::1%eth0", "2001:db8::ffff:2")):
        assert all(rejected(first))
        assert rejected(same, 1) == [False]
    refusal = limiter.reject("192.0.2.7", 0)
    assert dict(refusal.headers)[b"retry-after"] == b"3"
    assert limiter.reject("192.0.2.7", 3 * SECOND) is None
    for number in range(100):
        assert rejected(f"10.0.0.{number}", 1) == [True]
    assert len(limiter._wrong) == 3
    assert rejected("2001:db8::1", 1) == [True]  # forgotten


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (0, "0ms"),
        (17, "17ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (59_999, "59.999s"),
        (360_000, "6m0s"),
    ],
)
def test_times_are_written_as_openai_does(ms, written):
    assert duration(ms * 10**6) == written


MINUTE = 60_000_000_000
times = st.integers(0, 10 * MINUTE)
limits = st.integers(1, 5000)


@st.composite
def arrivals(draw):
    """A limit, and requests in the order of time: (time, estimate, used, time of its end)."""
    limit = draw(limits)
    at = 0
    rows = []
    for _ in range(draw(st.integers(1, 25))):
        at += draw(st.integers(0, MINUTE // 2) | st.integers(0, 1000))
        estimate = draw(st.integers(1, limit))
        used = draw(st.integers(0, estimate))
        rows.append((at, estimate, used, at + draw(st.integers(0, MINUTE))))
    return limit, rows


def played(limit, rows):
    """What a bucket admits when each request is settled at its end: (time, used)."""
    bucket = RateBucket(limit)
    happenings = [(at, 0, i) for i, (at, *_) in enumerate(rows)]
    happenings += [(row[3], 1, i) for i, row in enumerate(rows)]
    charges, admitted = {}, []
    for now, is_end, i in sorted(happenings):
        _, estimate, used, _ = rows[i]
        if not is_end and bucket.wait_ns(now, estimate) == 0:
            charges[i] = bucket.charge(now, estimate)
            admitted.append((now, used))
        elif is_end and i in charges:
            bucket.settle(charges[i], now, used)
    return admitted


@given(arrivals())
def test_no_window_holds_more_than_the_limit_and_what_has_leaked(case):
    limit, rows = case
    admitted = played(limit, rows)
    for first in range(len(admitted)):
        units = 0
        for at, used in admitted[first:]:
            units += used
            window = at - admitted[first][0]
            assert (units - limit) * MINUTE <= limit * window


@given(arrivals(), st.data())
def test_what_is_refused_is_admitted_after_its_wait_and_not_before(case, data):
    limit, rows = case
    bucket = RateBucket(limit)
    for at, estimate, *_ in rows:
        if bucket.wait_ns(at, estimate) == 0:
            bucket.charge(at, estimate)
    now = rows[-1][0]
    units = data.draw(st.integers(1, limit))
    wait = bucket.wait_ns(now, units)
    assert bucket.wait_ns(now + wait, units) == 0
    if wait:
        assert bucket.wait_ns(now + wait - 1, units) > 0


@given(arrivals())
def test_what_remains_is_what_would_be_admitted(case):
    limit, rows = case
    bucket = RateBucket(limit)
    for at, estimate, *_ in rows:
        remaining = bucket.remaining(at)
        assert not remaining or bucket.wait_ns(at, remaining) == 0
        assert bucket.wait_ns(at, remaining + 1) != 0
        if estimate <= remaining:
            bucket.charge(at, estimate)
        assert bucket.remaining(at + bucket.reset_ns(at)) == limit


@given(limits, times, st.data())
def test_settling_at_once_leaves_the_true_amount(limit, now, data):
    estimate = data.draw(st.integers(1, limit))
    used = data.draw(st.integers(0, 2 * limit))
    settled, exact = RateBucket(limit), RateBucket(limit)
    settled.settle(settled.charge(now, estimate), now, used)
    exact.charge(now, used)
    for bucket_now in (now, now + MINUTE // 3):
        assert settled.remaining(bucket_now) == exact.remaining(bucket_now)


def test_more_than_the_limit_is_never_admitted():
    assert RateBucket(10).wait_ns(0, 11) is None


def test_a_minutes_worth_is_admitted_at_once_and_then_evenly():
    bucket = RateBucket(60)
    bucket.charge(5, 60)
    assert bucket.wait_ns(5, 1) == MINUTE // 60
    assert bucket.remaining(5) == 0
    assert bucket.remaining(5 + MINUTE // 2) == 30
    assert bucket.reset_ns(5) == MINUTE


def test_a_refund_of_what_has_leaked_already_is_lost():
    bucket = RateBucket(60)
    charge = bucket.charge(0, 30)
    bucket.charge(MINUTE // 2, 60)  # the first has leaked by now
    bucket.settle(charge, MINUTE // 2, 0)
    assert bucket.remaining(MINUTE // 2) == 0


def test_what_was_used_above_the_estimate_is_charged_from_when_it_is_known():
    bucket = RateBucket(60)
    charge = bucket.charge(0, 10)
    bucket.settle(charge, 2 * MINUTE, 30)  # all that was charged has leaked by now
    assert bucket.remaining(2 * MINUTE) == 60 - (30 - 10)
