from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.safety.limits import RateBucket

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
