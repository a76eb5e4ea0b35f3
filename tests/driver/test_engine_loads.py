"""Idle stretches of the engines, and their mean load."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.spec import ROLES
from tts.driver.records import IdleWatch, MeanLoad

pairs = st.tuples(st.integers(0, 2), st.integers(0, 2))
states = st.lists(st.tuples(st.integers(0, 3), pairs, pairs), max_size=20)


@given(states)
def test_idle_stretches_are_the_time_in_which_nothing_was_in_flight(states):
    recorded = []
    watch = IdleWatch(recorded.append)
    now, idle, before = 0.0, dict.fromkeys(ROLES, 0.0), None
    for seconds, in_flight, pending in states:
        now += seconds
        for place, engine in enumerate(ROLES):
            if before is not None and not before[place]:
                idle[engine] += seconds
        watch.update(now, in_flight, pending)
        before = in_flight
    watch.end(now)
    for engine in ROLES:
        mine = [event for event in recorded if event.engine == engine]
        assert all(event.since < event.until for event in mine), "none is empty"
        assert sum(event.until - event.since for event in mine) == idle[engine]
        assert all(one.until <= following.since for one, following in pairwise(mine))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1))
def test_the_load_is_summed_over_time(states):
    load, now, area, before = MeanLoad(), 0.0, 0.0, 0
    for seconds, in_flight in states:
        now += seconds
        area += seconds * before
        before = in_flight
        assert load.update(now, in_flight) == pytest.approx(area)
