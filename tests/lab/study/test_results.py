"""Cells compared over rounds: ratios to the base, with intervals from all cells' noise."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.lab.study.results import ratios

VALUES = st.floats(0.1, 1e4)


def tables(least_rounds=1):
    return st.integers(2, 6).flatmap(
        lambda cells: st.integers(least_rounds, 4).flatmap(
            lambda rounds: st.lists(
                st.lists(VALUES, min_size=rounds, max_size=rounds),
                min_size=cells,
                max_size=cells,
            )
        )
    )


def named(rows):
    return {str(place): row for place, row in enumerate(rows)}


@given(tables(2), st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
def test_a_round_that_is_slower_for_every_cell_changes_nothing(rows, slower):
    plain = ratios(named(rows), "0")
    drifted = ratios(
        named([[v * f for v, f in zip(row, slower, strict=False)] for row in rows]), "0"
    )
    for name, ratio in plain.items():
        assert drifted[name].value == pytest.approx(ratio.value)
        assert drifted[name].low == pytest.approx(ratio.low)


@given(tables())
def test_a_ratio_is_that_of_the_geometric_means(rows):
    for name, ratio in ratios(named(rows), "0").items():
        expected = math.prod(
            value / base for value, base in zip(rows[int(name)], rows[0], strict=True)
        ) ** (1 / len(rows[0]))
        assert ratio.value == pytest.approx(expected)
        assert ratio.low is None or ratio.low <= ratio.value * (1 + 1e-9)


@given(tables(2))
def test_seen_from_the_other_side_a_ratio_and_its_interval_are_inverted(rows):
    there, back = ratios(named(rows), "0")["1"], ratios(named(rows), "1")["0"]
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high)


def test_one_round_says_nothing_of_noise():
    ratio = ratios({"a": [2.0], "b": [3.0]}, "a")["b"]
    assert ratio.value == pytest.approx(1.5)
    assert (ratio.low, ratio.is_certain) == (None, False)


def test_two_cells_give_the_interval_of_the_paired_t_test():
    # differences of logarithms: 0.1, 0.2, 0.3; mean 0.2, standard error 0.1 / sqrt(3)
    table = {"a": [1.0, 1.0, 1.0], "b": [math.exp(each) for each in (0.1, 0.2, 0.3)]}
    half = 4.303 * 0.1 / math.sqrt(3)
    ratio = ratios(table, "a")["b"]
    assert math.log(ratio.low) == pytest.approx(0.2 - half, abs=1e-4)
    assert math.log(ratio.high) == pytest.approx(0.2 + half, abs=1e-4)


def test_all_intervals_together_hold_the_truth_nineteen_times_in_twenty():
    rng = random.Random(1)
    held = 0
    for _ in range(1000):
        drift = [rng.gauss(0, 0.3) for _ in range(2)]
        table = {
            str(cell): [math.exp(0.05 * cell + each + rng.gauss(0, 0.1)) for each in drift]
            for cell in range(8)
        }
        found = ratios(table, "0")
        held += all(
            found[str(cell)].low <= math.exp(0.05 * cell) <= found[str(cell)].high
            for cell in range(8)
        )
    assert 940 <= held <= 985
