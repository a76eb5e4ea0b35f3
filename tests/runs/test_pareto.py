"""The Pareto front of (cost, value) pairs."""

from hypothesis import given
from hypothesis import strategies as st

from tts.runs.pareto import best_within, pareto_front

POINTS = st.lists(st.tuples(st.integers(0, 20).map(float), st.integers(0, 20).map(float)))


def dominates(one, other):
    return one != other and one[0] <= other[0] and one[1] >= other[1]


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points):
    front = [points[place] for place in pareto_front(points)]
    kept = {p for p in points if not any(dominates(other, p) for other in points)}
    assert set(front) == kept
    assert len(front) == len(kept)  # of equal pairs one


@given(POINTS)
def test_costs_and_values_rise_along_the_front(points):
    front = [points[place] for place in pareto_front(points)]
    assert front == sorted(set(front))
    assert [value for _, value in front] == sorted({value for _, value in front})


@given(POINTS, st.integers(-1, 21))
def test_the_best_within_a_budget_is_the_best_that_is_affordable(points, budget):
    place = best_within(points, budget)
    affordable = [value for cost, value in points if cost <= budget]
    assert (place is None) == (not affordable)
    if place is not None:
        assert points[place][1] == max(affordable)
        assert points[place][0] == min(c for c, v in points if v == max(affordable))
