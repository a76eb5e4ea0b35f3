"""Tables of runs and of simulations: on narrow screens every cell is there, and none is cut."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.table import Table
from tests.reports.screen import printed
from tests.runs.logs import SESSION, solved
from tests.runs.runs import row_of, write_run

from tts.lab.simulation.fleet import simulated_deployment
from tts.lab.simulation.scenario import Scenario, simulate
from tts.lab.simulation.workload import typical
from tts.reports.console import Sheet
from tts.reports.figures.results import accuracy_cell
from tts.reports.simulation import outcomes_table
from tts.reports.terminal import tables
from tts.runs.compare import read_rows
from tts.strategies.catalog import find_strategy


def shown(renderable, width=80):
    text = printed(Console.print, renderable, width=width)
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", [80, 60, 140])
def test_the_tables_of_runs_are_whole(width):
    fields = {
        "tokens": 152_406_432,
        "accuracy_by_level": {str(i): {"problems": 40, "accuracy": 0.8} for i in range(20)},
        "verifier_calls_per_problem": 1_234_567.8,
        "undecided": 3,
    }
    rows = [
        row_of(strategy, schedule=schedule, wall_s=wall_s, run=schedule, **fields)
        for strategy, schedule, wall_s in (
            ("weighted-best-of-n", "lockstep", 23_456.7),
            ("weighted-best-of-n", "alternating", 12_345.6),
            ("majority-vote", "decoupled", 12_345.6),
        )
    ]
    text = shown(tables(rows), width=width)
    for part in (
        "accuracy",
        "12,346",
        "problems",
        "1,234,568",
        "152,406,432",
        "speed-up",
        "1.90x",
        "9 comparisons undecided",
    ):
        assert part in text, part


def test_one_run_fits_eighty_columns_in_one_table():
    assert shown(tables([row_of("beam-search")])).count("beam-search") == 2  # and by rule


def test_simulated_schedules_are_compared_by_what_they_took():
    deployment = simulated_deployment("h100", 2)
    parameters = find_strategy("greedy").configure({}, context=deployment.generator.max_seq_len)
    scenario = Scenario(deployment, "time-sliced", typical(), parameters, 2, 2, 0, "off")
    made = simulate(scenario, "lockstep")
    first = replace(
        made,
        wall_s=100.0,
        generator=replace(made.generator, busy_s=80.0),
        verifier=replace(made.verifier, busy_s=30.0),
        calls_s=5.0,
        waiting=0.12,
    )
    second = replace(first, schedule="decoupled", wall_s=50.0, digest="another")
    shown_rows = outcomes_table(scenario, "greedy", [first, second])
    for part in ("wall s", "orch", "prompts", "batch", "p95 s", "same", "trees", "yes"):
        assert part in shown(shown_rows)
    lines = shown(shown_rows, width=200).splitlines()
    rows = {words[0]: words for line in lines if (words := line.split())}
    assert rows["lockstep"][1:7] == ["100.0", "1.00x", "80%", "30%", "5%", "12%"]
    assert rows["decoupled"][1:7] == ["50.0", "2.00x", "160%", "60%", "10%", "12%"]
    assert (rows["lockstep"][-1], rows["decoupled"][-1]) == ("yes", "NO")


CELLS = st.text("abc", min_size=1, max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=2, max_size=12), st.integers(40, 90))
def test_every_cell_is_shown_once_whatever_the_width(columns, width):
    table = Table(box=box.SIMPLE_HEAD)
    for heading, _ in columns:
        table.add_column(heading.upper(), no_wrap=True)
    table.add_row(*(cell for _, cell in columns))
    words = shown(Sheet(table), width=width).split()
    for place in (str.upper, str):
        expected = Counter(place(column[place is str]) for column in columns)
        assert not expected - Counter(words)


@pytest.mark.parametrize(
    ("share", "problems", "cell"),
    [
        (0.5, 100, "50.0% [40.4, 59.6]"),
        (1.0, 10, "100.0% [72.2, 100.0]"),
        (None, 10, "-"),
        (0.5, 0, "-"),
    ],
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
    rows = read_rows(write_run(tmp_path / "run", [SESSION, *known, *other]))
    text = shown(tables(rows))
    assert text.count("100.0% [51.0, 100.0]") == 2
    assert "[90.4, 100.0]" not in text
