"""How an engine's threads follow the cores, both models' work, and what is stated."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.openvino import threads
from tts.build.openvino.threads import LEAST_WEIGHTS, divide, threads_in_words, threads_of
from tts.build.spec import load_deployment

ROLES = ("generator", "verifier")
WEIGHTS = st.fixed_dictionaries({role: st.integers(1, 10**12) for role in ROLES})
LARGE = st.fixed_dictionaries({role: st.integers(10**10, 10**12) for role in ROLES})
NEITHER = {"generator": None, "verifier": None}
M = 10**6


@given(st.integers(1, 512), WEIGHTS)
def test_each_engine_has_a_thread_and_no_more_than_its_weights_keep_busy(cores, weights):
    found = divide(cores, weights, NEITHER)
    assert sum(found.values()) <= max(2, cores)
    for role in ROLES:
        assert 1 <= found[role] <= max(1, weights[role] / LEAST_WEIGHTS)


@given(st.integers(1, 512), WEIGHTS)
def test_another_core_takes_no_thread_away(cores, weights):
    fewer, more = divide(cores, weights, NEITHER), divide(cores + 1, weights, NEITHER)
    assert all(more[role] >= fewer[role] for role in ROLES)


@given(st.integers(2, 512), LARGE)
def test_large_models_leave_no_core_idle(cores, weights):
    assert sum(divide(cores, weights, NEITHER).values()) == cores


@given(st.integers(1, 512), LARGE, st.integers(1, 100))
def test_a_larger_generator_has_no_fewer_threads(cores, weights, times):
    larger = {**weights, "generator": times * weights["generator"]}
    before, after = divide(cores, weights, NEITHER), divide(cores, larger, NEITHER)
    assert after["generator"] >= before["generator"]


@given(st.integers(1, 512), WEIGHTS, st.sampled_from(ROLES), st.integers(1, 1024))
def test_what_is_stated_holds_and_the_other_engine_has_what_is_left(cores, weights, role, stated):
    found = divide(cores, weights, {**NEITHER, role: stated})
    other = next(each for each in ROLES if each != role)
    assert found[role] == stated
    assert 1 <= found[other] <= max(1, cores - stated)


@pytest.mark.parametrize(
    ("cores", "generator", "verifier", "expected"),
    [
        (1, 135 * M, 135 * M, (1, 1)),
        (2, 135 * M, 135 * M, (1, 1)),
        (4, 135 * M, 135 * M, (3, 1)),
        (16, 135 * M, 135 * M, (12, 4)),
        (16, 1500 * M, 7000 * M, (6, 10)),
        (16, 25 * M, 100 * M, (7, 9)),
    ],
)
def test_cores_are_divided_like_the_work(cores, generator, verifier, expected):
    weights = {"generator": generator, "verifier": verifier}
    assert tuple(divide(cores, weights, NEITHER).values()) == expected


@pytest.mark.parametrize("cores", [1, 2, 16, 128])
def test_the_demo_pair_has_one_thread_each(cores):
    assert threads_of(load_deployment("demo"), cores) == {"generator": 1, "verifier": 1}


def test_what_is_stated_needs_no_checkpoint(tiny_deployment):
    engines = {
        role: engine.model_copy(update={"threads": 3, "checkpoint": Path("/nowhere")})
        for role, engine in tiny_deployment.engines().items()
    }
    assert threads_of(tiny_deployment.model_copy(update=engines)) == dict.fromkeys(ROLES, 3)


def test_it_is_said_which_are_stated(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    demo = load_deployment("demo")
    verifier = demo.verifier.model_copy(update={"threads": 6})
    stated = demo.model_copy(update={"verifier": verifier})
    assert threads_in_words(stated) == "generator 1 (default), verifier 6 (stated); 16 cores"
