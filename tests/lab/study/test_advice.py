"""What follows from a study, in words."""

import pytest
from tests.lab.study.results import results_of

from tts.lab.study.advice import (
    advise,
    batch_advice,
    in_flight_advice,
    n_advice,
    schedule_advice,
    split_advice,
)
from tts.lab.study.cells import BASE

SLOWER, FASTER, ABOUT = [20.0, 20.3], [5.0, 5.1], [10.3, 9.7]


def test_nothing_is_advised_on_noise():
    results = results_of({"split-5": ABOUT, "batched": ABOUT})
    assert "Leave the division" in split_advice(results).text
    assert "told apart from it" in split_advice(results).text
    assert "Stay with schedule decoupled" in schedule_advice(results).text


def test_a_faster_division_is_advised_with_its_interval():
    text = split_advice(results_of({"split-50": FASTER})).text
    assert text.startswith("Give the generator 50% of the KV memory: 1.99x (")


def test_divisions_that_are_slower_are_named():
    text = split_advice(results_of({"split-5": SLOWER})).text
    assert "some are slower (generator's share 5%: 0.50x" in text
    assert "50%:" not in text


def test_a_faster_schedule_is_advised_and_slower_ones_are_named():
    assert schedule_advice(results_of({"batched": FASTER})).text.startswith("Use schedule batched")
    text = schedule_advice(results_of({"lockstep": SLOWER})).text
    assert "Slower: schedule lockstep 0.50x" in text
    assert "Not told apart from it: schedule batched" in text


def test_no_limit_of_problems_in_flight_is_advised_unless_one_is_faster():
    text = in_flight_advice(results_of({"in-flight-1": SLOWER})).text
    assert text.startswith("Set no limit")
    assert "Slower: 1: 0.50x" in text
    assert "At most 4 is not told apart from it" in text
    assert "takes 2 s instead of 2 s" in text
    faster = in_flight_advice(results_of({"in-flight-4": FASTER})).text
    assert faster.startswith("At most 4 (--in-flight): 1.99x")


@pytest.mark.parametrize(
    ("right", "n", "said"),
    [
        ({"n-4": 4, BASE: 19, "n-32": 20}, 16, "n = 4 is right 75.0 points less often"),
        ({"n-4": 18, BASE: 19, "n-32": 20}, 16, "not told apart) at 0.25 times the tokens"),
        ({"n-4": 2, BASE: 5, "n-32": 20}, 32, "right, at 1,920 generated tokens"),
        ({"n-4": 20, BASE: 5, "n-32": 20}, 4, "75.0 points more often"),
    ],
)
def test_n_stays_unless_another_is_certainly_right_more_often(right, n, said):
    text = n_advice(results_of({}, right)).text
    assert text.startswith(f"n = {n}:")
    assert said in text


def test_budgets_are_those_that_tuning_proposes():
    policy = {
        "generator": {"present": 64, "proposed": 48, "why": "the upper end"},
        "verifier": {"present": 4096, "proposed": 4096, "why": "max_seq_len"},
    }
    text = batch_advice(policy).text
    assert "generator.in_flight_requests: 64 -> 48 (the upper end)" in text
    assert "verifier.in_flight_tokens: 4,096, as it is" in text
    assert batch_advice({}) is None


def test_one_round_gives_no_interval_and_so_no_change():
    results = results_of(
        {name: [5.0] for name in ("batched", "split-5")}
        | {name: [10.0] for name in results_of({}) if name not in ("batched", "split-5")}
    )
    assert "Leave the division" in split_advice(results).text
    assert "one round: no interval" in schedule_advice(results).text
    assert in_flight_advice(results).text.startswith("Set no limit")


def test_every_advice_names_a_figure_of_the_study():
    from tts.reports.figures.study import FIGURES

    policy = {"generator": {"present": 64, "proposed": 48, "why": "so"}}
    found = advise(results_of({}), policy)
    assert [advice.subject for advice in found] == [
        "KV memory",
        "Batch sizes",
        "Schedule",
        "Problems in flight",
        "n",
    ]
    assert {advice.figure for advice in found} <= set(FIGURES)
