"""Every measure has one name, one definition on the page, and a value that fits its unit."""

import math

from hypothesis import given, settings
from tests.runs.logs import LOGS, SESSION, expansion, scoring, solved, started, whole_logs
from tests.runs.measures_page import PAGE, page_as_it_should_be, sections_of
from tests.runs.runs import run_of

from tts.runs.events import VERSION, SessionBegan
from tts.runs.named_measures import MEASURES, named_measures


def values(log):
    return {measure.name: measure.value for measure in named_measures(run_of(log))}


def test_the_page_shows_the_table_of_measures():
    """Written by `python -m tests.runs.measures_page`."""
    page = PAGE.read_text()
    assert page == page_as_it_should_be(page)
    assert sections_of(page) == list(MEASURES)


def test_every_measure_has_a_name_of_its_own_and_a_definition():
    measures = [measure for section in MEASURES.values() for measure in section]
    names = [measure.name for measure in measures]
    assert len(set(names)) == len(names)
    for measure in measures:
        assert measure.definition.endswith("."), measure.name
        assert "\n" not in measure.definition, measure.name


@settings(max_examples=30)
@given(whole_logs() | LOGS)
def test_all_are_there_for_any_log_and_within_their_units(log):
    found = named_measures(run_of(log))
    assert [m.name for m in found] == [m.name for m in named_measures(run_of([]))]
    for measure in found:
        if measure.value is not None:
            assert math.isfinite(measure.value)
            assert measure.value >= 0
            if measure.unit == "share" and "idle" not in measure.name:
                assert measure.value <= 1, measure.name


@given(whole_logs())
def test_useful_tokens_are_at_most_all_tokens_also_per_second(log):
    found = values(log)
    if found["token_throughput"] is not None:
        assert found["useful_token_throughput"] <= found["token_throughput"]


def test_the_measures_of_a_small_run():
    log = [
        SessionBegan(t=0.0, time="", version=VERSION, limits=(4, 40)),
        started("a", 0.0),
        expansion([0], 0.0, 2.0, tokens=10),
        scoring([0], 2.0, 3.0, load=20),
        solved("a", 4.0, correct={"best": True}, any_correct=True),
    ]
    found = values(log)
    expected = {
        "problems": 1,
        "accuracy": 1.0,
        "pass_at_n": 1.0,
        "wall": 4.0,
        "problem_throughput": 0.25,
        "token_throughput": 2.5,
        "latency_p99": 4.0,
        "time_to_first_step_p50": 2.0,
        "time_per_token_p50": 0.2,
        "generator_tokens_per_request": 15.0,
        "verifier_tokens_per_request": 20.0,
        "generator_in_flight": 0.5,
        "generator_batch_utilization": 0.125,
        "verifier_in_flight": 5.0,
        "verifier_batch_utilization": 0.125,
        "score_cache_hit_rate": 0.0,
        "orchestrator_cpu": None,
        "gpu_energy": None,
    }
    for name, value in expected.items():
        assert found[name] == value, name


def test_a_run_in_which_nothing_happened_has_no_rates():
    found = values([SESSION])
    assert found["problems"] == 0
    assert found["token_throughput"] is None is found["accuracy"]
