"""Bars of one character."""

import pytest

from tts.reports.sheet import sparkline


@pytest.mark.parametrize(
    ("values", "top", "line"),
    [
        ([0, 1, 2], None, " ▅█"),
        ([0, 0], None, "  "),
        ([0.1, 4], 8, "▁▅"),
        ([9], 8, "█"),
        ([], None, ""),
    ],
)
def test_a_bar_is_as_high_as_its_value_of_the_largest(values, top, line):
    assert sparkline(values, top) == line
