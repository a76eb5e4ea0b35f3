"""The unbiased estimator of pass@k, against its definition."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.pass_at_k import mean_pass_at_k, pass_at_k


@st.composite
def draws(draw):
    n = draw(st.integers(1, 9))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(draws())
def test_it_is_the_share_of_all_draws_that_hold_a_right_one(drawn):
    n, right, k = drawn
    ways = list(combinations(range(n), k))
    holding = sum(any(place < right for place in way) for way in ways)
    assert pass_at_k(n, right, k) == pytest.approx(holding / len(ways))


@given(draws())
def test_more_draws_never_help_less(drawn):
    n, right, k = drawn
    assert pass_at_k(n, right, k) <= pass_at_k(n, right, n) == float(right > 0)


@pytest.mark.parametrize("impossible", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_what_cannot_be_drawn_is_refused(impossible):
    with pytest.raises(ValueError, match="can be drawn"):
        pass_at_k(*impossible)


def test_the_mean_is_over_problems_with_enough_units():
    counts = {(4, 4): 1, (4, 0): 3, (2, 2): 5}
    assert mean_pass_at_k(counts, 4) == 0.25
    assert mean_pass_at_k(counts, 2) == pytest.approx(6 / 9)
    assert mean_pass_at_k(counts, 5) is None
