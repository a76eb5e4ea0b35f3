"""Numbers of the report."""

import math

import pytest

from tts.orchestrator.report import accuracy_cell, paired_difference


def test_paired_difference_is_over_common_problems_with_its_own_error():
    ours = {"a": True, "b": True, "c": False, "d": True, "only ours": True}
    theirs = {"a": True, "b": False, "c": False, "d": None, "only theirs": True}
    mean, error, count = paired_difference(ours, theirs)
    assert (mean, count) == (0.5, 4)
    assert error == pytest.approx(math.sqrt(1 / 3 / 4))  # variance of 0, 1, 0, 1 is 1/3
    assert paired_difference(ours, {"x": True}) == (0.0, 0.0, 0)
    assert paired_difference(ours, ours)[:2] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("share", "problems", "cell"),
    [(0.5, 100, "50.0% ±9.6"), (1.0, 10, "100.0% ±13.9"), (None, 10, "-"), (0.5, 0, "-")],
)
def test_accuracy_comes_with_its_interval(share, problems, cell):
    assert accuracy_cell(share, problems) == cell
