"""Measurements at equal cost: what was kept is found again, and the table says what it shows."""

import pytest
from scripts.bench.budgets.records import Cell, Fit, Records, Solved, Spent
from scripts.bench.budgets.table import markdown, rows_of
from scripts.bench.compare_budgets import plot, read, table


def solved(strategy, seed, problem, right, tokens=100):
    return Solved(Cell(strategy, 400, seed), problem, right, tokens, 50, 0.5)


@pytest.fixture
def records(tmp_path):
    kept = Records(tmp_path / "results.jsonl")
    kept.add([Fit("beam-search", 400, 4, 390.0), Fit("mcts", 400, 3, 380.0)])
    for seed in (0, 1):
        kept.add([solved("beam-search", seed, f"p{i}", i < 6) for i in range(10)])
        kept.add([solved("mcts", seed, f"p{i}", i < 4 + seed, 200) for i in range(10)])
        kept.add([Spent(Cell("mcts", 400, seed), 10, 4.0)])
    return kept


def test_what_was_kept_is_found_again(records, tmp_path):
    file = tmp_path / "results.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"type":"solved","cell":{"stra')
    again = Records(file)
    assert file.read_bytes() == whole
    assert (again.fits, again.solved, again.spent) == (records.fits, records.solved, records.spent)


def test_a_strategy_may_be_asked_for_with_parameters():
    cell = Cell("mcts:exploration=0.5,agg_strategy=min,width=8", 400, 0)
    assert cell.name == "mcts"
    assert cell.parameters == {"exploration": 0.5, "agg_strategy": "min", "width": 8}
    assert Cell("dvts", 400, 0).parameters == {}


def test_differences_are_paired_and_a_problem_counts_once(records):
    base, other = rows_of(records)
    found = other.over(base)
    assert found is not None
    assert found.count == 10
    assert found.mean == pytest.approx(-0.15)
    # p4 is lost with one seed of two, p5 with both
    assert found.error == pytest.approx((((0.5**2 + 1) - 10 * 0.15**2) / 9 / 10) ** 0.5)
    assert (other.tokens, other.accuracy, other.seconds) == (200, 0.45, 0.4)


def test_the_table_compares_within_a_budget(records):
    records.add([Fit("mcts", 800, 6, 700.0)])
    records.add([Solved(Cell("mcts", 800, 0), "p0", True, 700, 50, 0.5)])
    lines = markdown(records, "beam-search").splitlines()
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| beam-search", "4", "400"],
        ["| mcts", "3", "400"],
        ["| mcts", "6", "800"],
    ]
    assert "-15.0 [-35.9, +5.9]" in lines[3]
    assert lines[4].split(" | ")[6] == "-"


def test_pairs_are_compared_with_the_best_of_the_others(records, tmp_path):
    (tmp_path / "other").mkdir()
    other = Records(tmp_path / "other" / "results.jsonl")
    other.add([Fit("auto", 400, 256, 0)])
    other.add([solved("auto", 0, f"p{i}", i < 8) for i in range(10)])
    pairs = {"demo": read(f"{tmp_path}/other+{tmp_path}")}
    strategies = ["auto", "beam-search", "mcts", "rebase"]
    line = table(pairs, strategies, "auto").splitlines()[2]
    assert line == (
        "| demo | 400 | **80.0%** | 60.0% | 45.0% |  | 100 | +20.0 [-6.1, +46.1] (beam-search) |"
    )
    plot(pairs, strategies, "auto", tmp_path / "figure.svg")
    assert "beam-search" in (tmp_path / "figure.svg").read_text()
