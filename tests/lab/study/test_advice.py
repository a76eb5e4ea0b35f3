"""What follows from a study, in words."""

from dataclasses import replace

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
    assert "not told apart: 1.00x (" in text
    assert "2 s instead of 2 s" in text
    faster = in_flight_advice(results_of({"in-flight-4": FASTER})).text
    assert faster.startswith("At most 4 (--in-flight): 1.99x")


@pytest.mark.parametrize(
    ("right", "n", "said"),
    [
        ({"n-4": 4, BASE: 19, "n-32": 20}, 16, "n = 4 is right 75.0 points less often"),
        ({"n-4": 18, BASE: 19, "n-32": 20}, 16, "not told apart) at 0.25 times the tokens"),
        ({"n-4": 2, BASE: 5, "n-32": 20}, 32, "right, at 1,920 generated tokens"),
        ({"n-4": 20, BASE: 5, "n-32": 20}, 4, "75.0 points more often"),
        ({"n-4": 0, BASE: 0, "n-32": 0}, 16, "n = 16: 0% (0 to 9%) right"),
    ],
)
def test_n_stays_unless_another_is_certainly_right_more_often(right, n, said):
    text = n_advice(results_of({}, right)).text
    assert text.startswith(f"n = {n}:")
    assert said in text


def load_of(role, present, proposed, interval):
    """Throughput over the loads 1 to 8,192, as tune.json has it."""
    unit = "requests" if role == "generator" else "tokens"
    levels = [{"load": 2**power} for power in range(14)]
    point = {"low": interval[0], "high": interval[1]}
    return {
        "engines": {role: {"unit": unit, "levels": levels, "saturation_point": point}},
        "policy": {role: {"present": present, "proposed": proposed, "why": "so"}},
    }


@pytest.mark.parametrize(
    ("role", "present", "proposed", "interval", "said"),
    [
        ("generator", 64, 27, (17.5, 26.3), "64 -> 27 (so; the generator saturates at 18 to 26"),
        ("generator", 20, 27, (17.5, 26.3), "20, as it is (not told apart from its saturation"),
        ("verifier", 4096, 512, (1, 256), "4,096 -> 512 (so; the verifier saturates at 256"),
        ("verifier", 512, 512, (1, 256), "512, as it is (so; the verifier saturates at 256"),
        ("verifier", 4095, 5300, (None, None), "4,095, as it is (no load that was measured sat"),
        ("verifier", 4096, 5300, (None, None), "4,096, as it is (not told apart from its"),
        ("verifier", 3000, 5300, (2000, None), "3,000, as it is (not told apart from its"),
    ],
)
def test_a_budget_changes_only_to_leave_the_saturation_points_interval(
    role, present, proposed, interval, said
):
    text = batch_advice(load_of(role, present, proposed, interval)).text
    assert said in text
    assert text.endswith(", 95% interval).")


def test_without_a_proposal_nothing_is_said_of_budgets():
    assert batch_advice({"engines": {}, "policy": {}}) is None


def test_the_time_per_problem_is_compared_with_its_interval():
    shorter = results_of({"in-flight-4": FASTER}, medians_s={"in-flight-4": [1.0, 1.02]})
    text = in_flight_advice(shorter).text
    assert "a problem takes less time: 0.50x (" in text
    assert "1 s instead of 2 s (median)" in text
    longer = results_of({"in-flight-4": FASTER}, medians_s={"in-flight-4": [4.0, 4.1]})
    assert "a problem takes more time: 2.01x (" in in_flight_advice(longer).text
    unknown = replace(shorter["in-flight-4"], latency=None)
    text = in_flight_advice(shorter | {"in-flight-4": unknown}).text
    assert "its time per problem is not known" in text


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

    found = advise(results_of({}), load_of("generator", 64, 48, (30, 47)))
    assert [advice.subject for advice in found] == [
        "KV memory",
        "Batch sizes",
        "Schedule",
        "Problems in flight",
        "n",
    ]
    assert {advice.figure for advice in found} <= set(FIGURES)
