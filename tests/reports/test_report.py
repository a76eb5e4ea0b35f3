"""Numbers of the report."""

import pytest
from rich.console import Console
from tests.runs.logs import SESSION, solved
from tests.runs.runs import row_of, write_run

from tts.reports.terminal import accuracy_cell, tables
from tts.runs.compare import read_rows
from tts.strategies.catalog import find_strategy


def shown(renderable):
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize(
    ("share", "problems", "cell"),
    [(0.5, 100, "50.0% ±9.6"), (1.0, 10, "100.0% ±13.9"), (None, 10, "-"), (0.5, 0, "-")],
)
def test_accuracy_comes_with_its_interval(share, problems, cell):
    assert accuracy_cell(share, problems) == cell


def test_runs_of_one_search_are_compared_whatever_its_parameters_are(tiny_deployment):
    auto = find_strategy("auto").configure({}, context=64)
    rows = [
        row_of("auto", schedule=schedule, parameters=auto.to_json(), wall_s=wall_s, run=schedule)
        for schedule, wall_s in (("lockstep", 20.0), ("decoupled", 10.0))
    ]
    text = shown(tables(rows))
    assert "trees identical (auto: lockstep and decoupled): yes" in text
    assert "2.00x" in text


def test_intervals_are_about_the_problems_with_a_reference(tmp_path):
    """They were about all that were solved, and so too narrow."""
    known = [solved(str(place), 1.0, correct={"best": True}) for place in range(4)]
    other = [solved(str(place), 1.0, correct=None) for place in range(4, 40)]
    rows, _ = read_rows(write_run(tmp_path / "run", [SESSION, *known, *other]))
    text = shown(tables(rows))
    assert text.count("100.0% ±24.5") == 2
    assert "±4.4" not in text
