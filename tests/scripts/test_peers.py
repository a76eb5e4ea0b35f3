"""What the bench beside other people's programs makes of its measurements."""

import ast
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench.peers import tables
from scripts.bench.peers.environments import REQUIREMENTS, Peers, Unavailable
from scripts.bench.peers.process import Worker
from scripts.bench.peers.turns import (
    Measured,
    accuracies,
    chosen,
    final_answer,
    in_turns,
    ratios,
    spread_of,
)

ROUNDS = [
    Measured("ours", "beam-search", {"wall_s": 2.0, "best": 0.5, "weighted": 0.75}),
    Measured("theirs", "beam-search", {"wall_s": 8.0, "best": 0.5, "weighted": 0.5}),
    Measured("theirs", "beam-search", {"wall_s": 9.0, "best": 0.25, "weighted": 0.5}),
    Measured("ours", "beam-search", {"wall_s": 3.0, "best": 0.5, "weighted": 0.75}),
]


@given(st.integers(1, 6), st.integers(1, 7))
def test_every_system_has_every_round_and_the_order_turns(count, rounds):
    orders = in_turns(count, rounds)
    assert [sorted(order) for order in orders] == [list(range(count))] * rounds
    assert all(one == other[::-1] for one, other in pairwise(orders))


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_a_spread_holds_all_values(values):
    spread = spread_of(values)
    assert spread.least == min(values) <= spread.median <= max(values) == spread.most


@pytest.mark.parametrize(
    ("values", "digits", "shown"),
    [([2.0], 1, "2.0"), ([1.0, 3.0], 1, "2.0 (1.0 to 3.0)"), ([1234.4], 0, "1,234")],
)
def test_a_spread_shows_its_range_where_there_is_one(values, digits, shown):
    assert spread_of(values).shown(digits) == shown


def test_ratios_are_of_the_same_round():
    theirs, ours = ROUNDS[1:3], [ROUNDS[0], ROUNDS[3]]
    found = ratios(theirs, ours, "wall_s")
    assert (found.least, found.median, found.most) == (3.0, 3.5, 4.0)
    assert ratios(theirs, [], "wall_s") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so $\boxed{75}$. I hope it is correct.", "75"),
        (r"\boxed{1} and then \boxed{ -07 }", "-7"),
        (r"\boxed{x}", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_boxed_integer(text, answer):
    assert final_answer(text) == answer


def test_the_best_completion_and_the_weighted_vote_may_differ():
    completions = [(r"\boxed{1}", 0.9), (r"\boxed{2}", 0.6), (r"\boxed{2}", 0.5), ("none", 0.8)]
    assert chosen(completions) == ("1", "2")
    assert chosen([("none", 0.1)]) == (None, None)
    found = accuracies([completions, [(r"\boxed{3}", 0.1)]], ["2", "3"])
    assert found == {"best": 0.5, "weighted": 1.0}


def test_rows_compare_with_ours_and_print_losses_as_they_are():
    ours, theirs = tables.rows_of(ROUNDS, tables.SEARCH, "ours", "wall_s")
    assert ours == [
        *("beam-search", "ours", "2", "2.5 (2.0 to 3.0)", "50.0", "75.0", ""),
    ]
    assert theirs[3:] == ["8.5 (8.0 to 9.0)", "37.5 (25.0 to 50.0)", "50.0", "3.50 (3.00 to 4.00)"]
    page = tables.markdown(ROUNDS, tables.SEARCH, "ours", "wall_s").splitlines()
    assert page[0] == "| case | system | rounds | wall s | best, % | weighted, % | wall s / ours |"
    assert len(page) == 4


def test_without_ours_there_is_nothing_to_compare_with():
    assert tables.rows_of(ROUNDS, tables.SEARCH, "", "wall_s")[1][-1] == ""


def test_every_peer_is_pinned():
    for file in REQUIREMENTS.iterdir():
        lines = file.read_text().split()
        assert all(line.count("==") == 1 for line in lines), file.name


def test_workers_are_programs_that_need_nothing_of_ours():
    folder = Path(tables.__file__).with_name("workers")
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module.partition(".")[0] not in {"tts", "scripts"}, file.name


def test_a_folder_without_search_and_learn_is_refused_by_name(tmp_path):
    with pytest.raises(Unavailable, match=str(tmp_path)):
        Peers(tmp_path).search_and_learn(tmp_path)


ECHO = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "end" in asked:
        sys.exit("had enough")
    print(json.dumps(asked), flush=True)
"""


def test_a_worker_answers_and_one_that_has_ended_says_why(tmp_path):
    with Worker([sys.executable, "-c", ECHO], tmp_path / "log") as worker:
        assert worker.ask({"n": 1}) == {"n": 1}
        assert worker.ask({"n": 2}) == {"n": 2}
        with pytest.raises(Unavailable, match="had enough"):
            worker.ask({"end": True})
