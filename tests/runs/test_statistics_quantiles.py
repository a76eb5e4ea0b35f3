"""Quantiles of streams: bounded memory, known error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.statistics import SKETCH_ERROR, QuantileSketch, quantile

VALUES = st.lists(st.integers(0, 10**9).map(lambda n: n / 1000), max_size=60)


def sketch_of(values):
    sketch = QuantileSketch()
    for value in values:
        sketch.add(value)
    return sketch


@given(VALUES, st.integers(0, 100))
def test_a_quantile_is_right_to_a_hundredth(values, percent):
    found, exact = sketch_of(values).quantile(percent / 100), quantile(values, percent / 100)
    assert found == (None if exact is None else pytest.approx(exact, rel=SKETCH_ERROR + 1e-9))


@given(VALUES)
def test_a_mean_is_exact(values):
    mean = sum(values) / len(values) if values else None
    assert sketch_of(values).mean == (None if mean is None else pytest.approx(mean))


@given(VALUES, st.integers(1, 40))
def test_a_histogram_holds_every_value_in_few_bins(values, most):
    bins = list(sketch_of(values).histogram(most))
    assert sum(count for _, _, count in bins) == len(values)
    assert len([low for low, _, _ in bins if low]) <= most
    for value in values:
        assert any(low * 0.999999 <= value <= high * 1.000001 for low, high, count in bins if count)
