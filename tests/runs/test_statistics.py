"""Quantiles, intervals, paired differences, pass@k and the Pareto front."""

import math
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.statistics import (
    best_within,
    holm,
    joint_t,
    joint_z,
    logarithmic_histogram,
    mcnemar,
    paired,
    pareto_front,
    pass_at_k,
    quantile,
    ratio_of_means,
    rounded,
    share_difference,
    wilson,
)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_so_many_values_are_not_above_a_quantile(values, share):
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_nothing_has_no_quantile():
    assert quantile([], 0.5) is None
    assert rounded(None, 3) is None


@given(st.lists(st.integers(1, 10**6), max_size=40), st.integers(1, 30))
def test_a_logarithmic_histogram_holds_every_value_in_equal_bins(values, most):
    bins = logarithmic_histogram([0, *values], most)
    assert sum(count for _, _, count in bins) == len(values)
    assert len(bins) <= most
    for value in values:
        assert any(low * 0.999 <= value <= high * 1.001 for low, high, count in bins if count)


def test_the_interval_is_sane_at_the_ends():
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(1.0, 10) == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert wilson(0.0, 10)[0] == 0.0


VALUES = st.lists(st.integers(-50, 50).map(float), min_size=1)


@given(VALUES)
def test_it_is_the_normal_interval_of_the_mean(differences):
    found = paired(differences)
    count, mean = len(differences), sum(differences) / len(differences)
    spread = sum((value - mean) ** 2 for value in differences) / max(1, count - 1)
    error = math.sqrt(spread / count)
    assert (found.mean, found.count) == (pytest.approx(mean), count)
    assert found.error == pytest.approx(error)
    assert found.interval_95 == pytest.approx((mean - 1.96 * error, mean + 1.96 * error))


def test_nothing_has_no_mean():
    assert paired([]) is None


COSTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1)


@given(COSTS)
def test_a_ratio_has_an_interval_that_no_saving_leaves_and_that_turns_round(costs):
    found, inverse = ratio_of_means(costs), ratio_of_means([(two, one) for one, two in costs])
    one, other = map(sum, zip(*costs, strict=True))
    assert (found is None, inverse is None) == (not one, not other)
    if found and inverse:
        low, high = found
        assert 0 <= low <= other / one * (1 + 1e-9)
        assert high >= other / one * (1 - 1e-9)
        assert inverse == pytest.approx((1 / high, 1 / low))
    elif found:
        assert found == (0, 0)


def test_a_ratio_is_as_certain_as_its_pairs_are_alike():
    assert ratio_of_means([(10, 1), (1000, 100)]) == pytest.approx((0.1, 0.1))
    wide = math.exp(1.96 * math.sqrt(0.18 / 3 / 4))  # 0.1 - 0.4, 1.9 - 1.6, twice 0
    found = ratio_of_means([(20, 1), (80, 19), (50, 10), (50, 10)])
    assert found == pytest.approx((0.2 / wide, 0.2 * wide))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 15, 30, 31, 120])
@pytest.mark.parametrize("comparisons", [1, 15])
def test_joint_t_leaves_out_5_percent_over_the_number_of_comparisons(degrees, comparisons):
    end = joint_t(degrees, comparisons)

    def density(x):
        return (1 + x * x / degrees) ** (-(degrees + 1) / 2)

    logs = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(logs) / math.sqrt(degrees * math.pi)
    width = end / 10_000  # Simpson's rule
    inner = math.fsum((4 if i % 2 else 2) * density(i * width) for i in range(1, 10_000))
    half = scale * width / 3 * (density(0) + inner + density(end))
    assert 1 - 2 * half == pytest.approx(0.05 / comparisons, rel=1e-3)


def test_joint_z_is_that_of_very_many_degrees():
    assert joint_z(1) == pytest.approx(1.96, abs=1e-3)
    assert joint_z(15) == pytest.approx(joint_t(10_001, 15), rel=1e-3)


@given(st.integers(0, 8), st.integers(0, 8))
def test_mcnemar_is_the_chance_of_coins_that_are_no_more_even(one, other):
    count = one + other
    tosses = [abs(2 * sum(toss) - count) for toss in product((0, 1), repeat=min(count, 12))]
    if count <= 12:
        chance = sum(lead >= abs(one - other) for lead in tosses) / len(tosses)
        assert mcnemar(one, other) == pytest.approx(chance)
    assert mcnemar(one, other) == mcnemar(other, one)


def test_mcnemar_takes_thousands_of_disagreements():
    assert mcnemar(3000, 3000) == 1.0
    assert mcnemar(3300, 2700) == pytest.approx(0.0, abs=1e-12)


@given(st.lists(st.integers(0, 100).map(lambda p: p / 1000), max_size=8))
def test_corrected_p_values_are_those_of_holms_step_down_test(p_values):
    corrected = holm(p_values)
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for level in (0.01, 0.05, 0.3):
        refused = []  # the definition: from the smallest on, until one is too large
        for rank, place in enumerate(order):
            if p_values[place] * (len(p_values) - rank) >= level:
                break
            refused.append(place)
        assert {place for place, each in enumerate(corrected) if each < level} == set(refused)


def test_few_problems_without_a_disagreement_are_no_certainty():
    low, high = share_difference(0, 0, 10)
    assert low == -high < -0.1
    assert share_difference(0, 0, 10_000)[1] < 0.001
    assert share_difference(50, 10, 100) == pytest.approx((0.2628, 0.5215), abs=1e-4)
    assert share_difference(1, 0, 1)[1] == 1.0 == -share_difference(0, 1, 1)[0]


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
    assert pass_at_k(n, right, n) == float(right > 0)


@pytest.mark.parametrize("impossible", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_what_cannot_be_drawn_is_refused(impossible):
    with pytest.raises(ValueError, match="can be drawn"):
        pass_at_k(*impossible)


POINTS = st.lists(st.tuples(st.integers(0, 20).map(float), st.integers(0, 20).map(float)))


def dominates(one, other):
    return one != other and one[0] <= other[0] and one[1] >= other[1]


@given(POINTS)
def test_the_front_is_what_nothing_dominates_by_rising_cost(points):
    front = [points[place] for place in pareto_front(points)]
    assert front == sorted(p for p in set(points) if not any(dominates(q, p) for q in points))


@given(POINTS, st.integers(-1, 21))
def test_the_best_within_a_budget_is_the_best_that_is_affordable(points, budget):
    place = best_within(points, budget)
    affordable = [value for cost, value in points if cost <= budget]
    assert (place is None) == (not affordable)
    if place is not None:
        assert points[place][1] == max(affordable)
        assert points[place][0] == min(c for c, v in points if v == max(affordable))
