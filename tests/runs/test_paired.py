"""Paired differences and McNemar's test."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.paired import mcnemar, paired, paired_difference, share_difference_95

VALUES = st.lists(st.integers(-50, 50).map(float), min_size=1)


@given(VALUES)
def test_the_interval_is_symmetric_about_the_mean_and_mirrored_with_the_runs(differences):
    found = paired(differences)
    low, high = found.interval_95
    assert found.mean - low == pytest.approx(high - found.mean)
    turned = paired([-value for value in differences])
    assert turned.interval_95 == pytest.approx((-high, -low))
    assert turned.is_certain == found.is_certain


@given(VALUES)
def test_it_is_the_normal_interval_of_the_mean(differences):
    found = paired(differences)
    count, mean = len(differences), sum(differences) / len(differences)
    spread = sum((value - mean) ** 2 for value in differences) / max(1, count - 1)
    assert (found.mean, found.count) == (pytest.approx(mean), count)
    assert found.error == pytest.approx(math.sqrt(spread / count))


def test_nothing_has_no_mean_and_what_does_not_vary_is_certain():
    assert paired([]) is None
    assert paired([2.0, 2.0]).is_certain
    assert not paired([1.0, -1.0]).is_certain


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


def test_paired_difference_is_over_common_problems_with_its_own_error():
    ours = {"a": True, "b": True, "c": False, "d": True, "only ours": True}
    theirs = {"a": True, "b": False, "c": False, "d": None, "only theirs": True}
    mean, error, count = paired_difference(ours, theirs)
    assert (mean, count) == (0.5, 4)
    assert error == pytest.approx(math.sqrt(1 / 3 / 4))  # variance of 0, 1, 0, 1 is 1/3
    assert paired_difference(ours, {"x": True}) == (0.0, 0.0, 0)
    assert paired_difference(ours, ours)[:2] == (0.0, 0.0)


def test_few_problems_without_a_disagreement_are_no_certainty():
    low, high = share_difference_95(0, 0, 10)
    assert low == -high < -0.1
    assert share_difference_95(0, 0, 10_000)[1] < 0.001
    assert share_difference_95(50, 10, 100)[0] > 0.2  # 40 points, and far from none
