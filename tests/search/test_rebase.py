"""REBASE: how children are shared out."""

from hypothesis import given
from hypothesis import strategies as st

from tts.search.rebase import share_out


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.integers(0, 64),
    st.floats(1e-3, 1e3),
)
def test_shares_add_up_to_the_budget_and_follow_the_rank(scores, budget, temperature):
    scores.sort(reverse=True)
    shares = share_out(scores, budget, temperature)
    assert sum(shares) == budget
    assert min(shares) >= 0
    assert max(shares) == shares[0]


def test_shares_worked_by_hand():
    # e^0 : e^-1 : e^-2 = 1 : 0.368 : 0.135; 8 * 0.665 -> 6, then 2 * 0.731 -> 2, then none
    assert share_out([0.6, 0.4, 0.2], 8, 0.2) == [6, 2, 0]
    assert share_out([0.5] * 4, 8, 0.2) == [2, 2, 2, 2], "float noise must not give one a third"
