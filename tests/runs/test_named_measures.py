"""Every measure has one name, one definition on the page, and a value that fits its unit."""

import math

from hypothesis import given, settings
from tests.runs.logs import (
    LOGS,
    SESSION,
    expansion,
    idle,
    scoring,
    solved,
    started,
    texts,
    whole_logs,
)
from tests.runs.measures_page import PAGE, page_as_it_should_be, sections_of
from tests.runs.runs import run_of

from tts.runs.events import VERSION, LoggedAnswer, LoggedCompletion, Resources, SessionBegan
from tts.runs.measures import Measures
from tts.runs.named_measures import ALL, MEASURES


def values(log):
    return run_of(log).measures


def test_the_page_shows_the_table_of_measures():
    """Written by `python -m tests.runs.measures_page`."""
    page = PAGE.read_text()
    assert page == page_as_it_should_be(page)
    assert sections_of(page) == list(MEASURES)
    names = [measure.name for measure in ALL]
    assert len(set(names)) == len(names)


@settings(max_examples=30)
@given(whole_logs() | LOGS)
def test_all_are_there_for_any_log_and_within_their_units(log):
    totals = run_of(log).totals
    for measure in ALL:
        measure.value(Measures())
        if (value := measure.value(totals)) is not None:
            assert math.isfinite(value)
            assert value >= 0
            if measure.unit == "share" and "idle" not in measure.name:
                assert value <= 1, measure.name


def test_the_measures_of_a_small_run():
    log = [
        SessionBegan(t=0.0, time="", version=VERSION, limits=(4, 40)),
        started("a", 0.0),
        expansion([0], 0.0, 2.0, thoughts=texts("x", length=10)),
        expansion([1], 0.0, 2.0, thoughts=texts("x", length=5)),
        scoring([0], 2.0, 3.0, load=20),
        scoring([0], 2.0, 3.0, cached=True),
        idle("verifier", 0.0, 2.0, "dependency"),
        Resources(t=4.0, cpu_s=1.0, energy_j={"0": 30.0, "1": 10.0}),
        solved(
            "a",
            4.0,
            correct={"best": True},
            any_correct=True,
            lost_tokens=2,
            groups=(LoggedAnswer("1", True),),
            completions=(LoggedCompletion((0,), 0.75, 0),),
        ),
    ]
    found = values(log)
    expected = {
        "problems": 1,
        "accuracy": 1.0,
        "accuracy_low_95": 0.2065,
        "accuracy_high_95": 1.0,
        "pass_at_n": 1.0,
        "verifier_auroc": None,
        "verifier_calibration_error": 0.25,
        "wall": 4.0,
        "problem_throughput": 0.25,
        "token_throughput": 3.75,
        "useful_token_throughput": 2.5,
        "useful_share": 0.6667,
        "precise_goodput": 3.333,
        "latency_p99": 4.0,
        "time_to_first_step_p50": 2.0,
        "time_per_token_p50": 0.2,
        "time_per_token_p95": 0.4,
        "generator_requests": 2,
        "generator_tokens_per_request": 12.5,
        "verifier_tokens_per_request": 20.0,
        "generator_in_flight": 1.0,
        "generator_batch_utilization": 0.25,
        "verifier_in_flight": 5.0,
        "verifier_batch_utilization": 0.125,
        "generator_idle": 0.0,
        "verifier_idle": 0.5,
        "score_cache_hit_rate": 0.5,
        "speculation_sent": 0,
        "speculation_hit_rate": None,
        "lost_tokens": 2,
        "waste": 0.1333,
        "orchestrator_cpu": 1.0,
        "orchestrator_cpu_share": 0.25,
        "gpu_energy": 40.0,
        "gpu_energy_per_problem": 40.0,
    }
    assert expected.items() <= found.items()
    nothing = values([SESSION])
    assert nothing["problems"] == 0
    assert nothing["token_throughput"] is None is nothing["accuracy"]
