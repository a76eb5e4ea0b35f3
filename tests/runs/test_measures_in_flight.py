"""Load over time in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import TIMES

from tts.runs.measures import LoadOverTime

STRETCHES = 8
LOADS = st.lists(
    st.tuples(TIMES, TIMES, st.integers(1, 9)).map(lambda drawn: (*sorted(drawn[:2]), drawn[2])),
    max_size=20,
)


def load_of(intervals):
    load = LoadOverTime(STRETCHES)
    for sent, done, weight in intervals:
        load.add(sent, done, weight)
    return load


@given(LOADS)
def test_the_integral_is_that_of_loads_times_durations(intervals):
    expected = sum((done - sent) * weight for sent, done, weight in intervals)
    assert load_of(intervals).total == pytest.approx(expected)


@given(LOADS.filter(bool))
def test_each_stretch_has_its_own_mean(intervals):
    load, wall = load_of(intervals), max(done for _, done, _ in intervals) or 1.0
    means = load.means(wall)
    assert len(means) <= STRETCHES
    for place, mean in enumerate(means):
        begin, end = place * load.width_s, min((place + 1) * load.width_s, wall)
        inside = sum(
            weight * max(0.0, min(done, end) - max(sent, begin)) for sent, done, weight in intervals
        )
        assert mean == pytest.approx(inside / (end - begin), abs=1e-6)


@given(LOADS)
def test_the_order_of_requests_does_not_matter(intervals):
    one, other = load_of(intervals), load_of(intervals[::-1])
    assert one.width_s == other.width_s
    assert one.means(10.0) == pytest.approx(other.means(10.0))
