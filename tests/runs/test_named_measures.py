"""Every measure has one name, one definition on the page, and a value that fits its unit."""

import math
import re
from pathlib import Path

from hypothesis import given, settings
from tests.runs.logs import LOGS, SESSION, expansion, scoring, solved, started, whole_logs
from tests.runs.runs import run_of

from tts.runs.events import Session
from tts.runs.named_measures import named_measures

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def values(log):
    return {measure.name: measure.value for measure in named_measures(run_of(log))}


def test_every_measure_is_defined_on_the_page():
    """Names of a row may share a beginning: `latency_p50`, `_p95`."""
    named = set()
    for row in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE):
        first, *others = re.findall(r"`([a-z0-9_]+)`", row)
        named |= {first, *others, *(first.rpartition("_")[0] + end for end in others)}
    for measure in named_measures(run_of([])):
        name = measure.name.replace("verifier_batch", "generator_batch")
        name = name.replace("verifier_request_", "generator_request_")
        assert name in named, measure.name


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
        Session(t=0.0, time="", limits=(4, 40)),
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
