"""Small statistics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.intervals import half_width, wilson
from tts.runs.statistics import fraction, quantile, rounded


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_so_many_values_are_not_above_a_quantile(values, share):
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_nothing_has_no_quantile_and_no_fraction():
    assert quantile([], 0.5) is None
    assert fraction([]) is None
    assert rounded(None, 3) is None


@given(st.lists(st.sampled_from([True, False, None]), min_size=1))
def test_what_is_unknown_counts_as_false(flags):
    assert fraction(flags) == round(flags.count(True) / len(flags), 4)


def test_the_interval_is_sane_at_the_ends():
    low, high = wilson(0.5, 100)
    assert (high - low) / 2 == pytest.approx(half_width(0.5, 100))
    assert wilson(1.0, 10) == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert wilson(0.0, 10)[0] == 0.0
