"""What follows from a study, in words."""

import math
import random
from dataclasses import replace

import pytest
from tests.lab.study.results import CELLS, results_of, run_result

from tts.lab.study.advice import (
    advise,
    batch_advice,
    in_flight_advice,
    n_advice,
    schedule_advice,
    split_advice,
)
from tts.lab.study.cells import BASE
from tts.lab.study.results import compared

SLOWER, FASTER, ABOUT = [20.0, 20.3], [5.0, 5.1], [10.3, 9.7]


ROUND = {name: [5.0 if name in ("batched", "split-5") else 10.0] for name in results_of({})}


@pytest.mark.parametrize(
    ("advice", "seconds", "begins", "said"),
    [
        (split_advice, {"split-5": ABOUT}, "Leave the division", ["is told apart from it"]),
        (split_advice, {"split-50": FASTER}, "Give the generator 50% of", ["memory: 1.99x ["]),
        (split_advice, {"split-5": SLOWER}, "Leave the", ["slower (generator's share 5%: 0.50x"]),
        (split_advice, ROUND, "Leave the division", ["one round: no interval"]),
        (schedule_advice, {"batched": ABOUT}, "Stay with schedule decoupled", []),
        (schedule_advice, {"batched": FASTER}, "Use schedule batched: 1.99x [", []),
        (
            schedule_advice,
            {"lockstep": SLOWER},
            "Stay with",
            ["Slower: schedule lockstep 0.50x", "Not told apart from it: schedule batched 1.00x"],
        ),
        (schedule_advice, ROUND, "Stay with", ["speculation off 1.00x (one round: no interval)"]),
        (
            in_flight_advice,
            {"in-flight-1": SLOWER},
            "Set no limit",
            [
                *("Slower: 1: 0.50x", "At most 4 is not told apart from it"),
                *("not told apart: 1.00x [", "2 s instead of 2 s"),
            ],
        ),
        (in_flight_advice, {"in-flight-4": FASTER}, "At most 4 (--in-flight): 1.99x", []),
        (in_flight_advice, ROUND, "Set no limit", []),
    ],
)
def test_only_what_is_beyond_the_noise_is_advised_and_named(advice, seconds, begins, said):
    text = advice(results_of(seconds)).text
    assert text.startswith(begins)
    for part in said:
        assert part in text
    assert ("50%:" in text) == (begins == "Leave the division")  # it is not among the slower ones


@pytest.mark.parametrize(
    ("right", "n", "said"),
    [
        ({"n-4": 4, BASE: 19, "n-32": 20}, 16, "n = 4 is right 75.0 points less often"),
        ({"n-4": 18, BASE: 19, "n-32": 20}, 16, "(not told apart) at 0.25 times the tokens"),
        ({"n-4": 2, BASE: 5, "n-32": 20}, 32, "right, at 1,920 generated tokens"),
        ({"n-4": 20, BASE: 5, "n-32": 20}, 4, "75.0 points more often"),
        ({"n-4": 0, BASE: 0, "n-32": 0}, 16, "n = 16: 0.0% [0.0, 8.8] right"),
    ],
)
def test_n_stays_unless_another_is_certainly_right_more_often(right, n, said):
    text = n_advice(results_of({}, right)).text
    assert text.startswith(f"n = {n}:")
    assert said in text


def load_of(role, present, proposed, interval):
    """Throughput over the loads 1 to 8,192, as tune.json has it."""
    engine = {
        "unit": "requests" if role == "generator" else "tokens",
        "levels": [{"load": 2**power} for power in range(14)],
        "saturation_point": dict(zip(("low", "high"), interval, strict=True)),
    }
    policy = {"present": present, "proposed": proposed, "why": "so"}
    return {"engines": {role: engine}, "policy": {role: policy}}


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
    assert batch_advice({"engines": {}, "policy": {}}) is None


def test_the_time_per_problem_is_compared_with_its_interval():
    shorter = results_of({"in-flight-4": FASTER}, medians_s={"in-flight-4": [1.0, 1.02]})
    text = in_flight_advice(shorter).text
    assert "a problem takes less time: 0.50x [" in text
    assert "1 s instead of 2 s (median)" in text
    longer = results_of({"in-flight-4": FASTER}, medians_s={"in-flight-4": [4.0, 4.1]})
    assert "a problem takes more time: 2.01x [" in in_flight_advice(longer).text
    unknown = replace(shorter["in-flight-4"], latency=None)
    text = in_flight_advice(shorter | {"in-flight-4": unknown}).text
    assert "its time per problem is not known" in text


def test_every_advice_names_a_figure_of_the_study():
    from tts.reports.study_page import FIGURES

    found = advise(results_of({}), load_of("generator", 64, 48, (30, 47)))
    subjects = ["KV memory", "Batch sizes", "Schedule", "Problems in flight", "n"]
    assert [advice.subject for advice in found] == subjects
    assert {advice.figure for advice in found} <= set(FIGURES)


def test_at_most_one_study_in_twenty_advises_a_change_where_nothing_differs():
    rng = random.Random(0)
    changes = ("Give the generator", "Use ", "At most ", "n = 4:", "n = 32:")
    advised = 0
    for _ in range(400):
        easy = [rng.random() for _ in range(40)]
        drift = [rng.gauss(0, 0.3) for _ in range(2)]
        runs = {
            cell.name: tuple(
                replace(
                    run_result(10 * math.exp(slower + rng.gauss(0, 0.05))),
                    right={
                        str(place): rng.random() < easy[place]
                        for place in range(20 * number, 20 * number + 20)
                    },
                )
                for number, slower in enumerate(drift)
            )
            for cell in CELLS
        }
        found = advise(compared(CELLS, runs), {"engines": {}, "policy": {}})
        advised += any(each.text.startswith(changes) for each in found)
    assert 1 <= advised <= 20, "17% without a correction for the number of cells"
