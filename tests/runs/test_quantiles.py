"""Quantiles of streams: bounded memory, known error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.quantiles import ERROR, QuantileSketch
from tts.runs.statistics import quantile

VALUES = st.lists(st.integers(0, 10**9).map(lambda n: n / 1000), max_size=60)


def sketch_of(values):
    sketch = QuantileSketch()
    for value in values:
        sketch.add(value)
    return sketch


@given(VALUES, st.integers(0, 100))
def test_a_quantile_is_right_to_a_hundredth(values, percent):
    found, exact = sketch_of(values).quantile(percent / 100), quantile(values, percent / 100)
    assert found == (None if exact is None else pytest.approx(exact, rel=ERROR + 1e-9))


@given(VALUES, VALUES)
def test_halves_merge_into_the_whole(one, other):
    merged, whole = sketch_of(one), sketch_of(one + other)
    merged.merge(sketch_of(other))
    assert merged.mean == (None if whole.mean is None else pytest.approx(whole.mean))
    for share in (0.0, 0.5, 0.95, 1.0):
        assert merged.quantile(share) == whole.quantile(share)


@given(VALUES, st.integers(1, 40))
def test_a_histogram_holds_every_value_in_few_bins(values, most):
    bins = list(sketch_of(values).histogram(most))
    assert sum(count for _, _, count in bins) == len(values)
    assert len([low for low, _, _ in bins if low]) <= most
    for value in values:
        assert any(low * 0.999999 <= value <= high * 1.000001 for low, high, count in bins if count)
