"""What load costs an engine is what the formula says, and nothing until it was seen."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.scheduling.load_curve import LoadCurve

LOADS = [2**power for power in range(9)]

positive = st.floats(1e-3, 1e3)


def learn(curve, loads, step_s, each_s, *, count=20, noise=0.0, seed=0, tokens=(5, 15)):
    """Requests of random length at each load, each as slow as the others that share its steps."""
    rng = random.Random(seed)
    for load in loads:
        for _ in range(count):
            length = rng.randint(*tokens)
            took = length * (step_s + each_s * load)
            curve.add(load, length, took * rng.uniform(1 - noise, 1 + noise))
    return curve


@given(positive, positive, st.lists(st.sampled_from(LOADS), min_size=2, unique=True))
def test_share_and_seconds_are_what_the_formula_says(step_s, each_s, loads):
    curve = LoadCurve()
    assert curve.share(8) is curve.seconds(8) is None
    learn(curve, loads[:1], step_s, each_s, tokens=(10, 10))
    assert curve.share(8) is None, "one load tells nothing"
    seen = pytest.approx(10 * (step_s + each_s * loads[0]))
    assert curve.seconds(0) == curve.seconds(4) == curve.seconds(64) == seen
    learn(curve, loads[1:], step_s, each_s, tokens=(10, 10))
    for load in (0, 1, 7, 1000):
        took = 10 * (step_s + each_s * load)
        noise = 1e-6 * each_s * 10 * max(loads)
        assert curve.seconds(load) == pytest.approx(took, rel=1e-6, abs=noise)
        varied = learn(LoadCurve(), loads, step_s, each_s)
        assert varied.share(load) == pytest.approx(10 * each_s * load / took, rel=1e-2)


@given(positive, positive, st.integers(0, 2**32))
def test_a_noisy_engine_is_known_within_a_half_at_the_loads_that_were_seen(step_s, each_s, seed):
    curve = learn(LoadCurve(), LOADS, step_s, each_s, count=60, noise=0.2, seed=seed)
    for load in LOADS[4:]:
        exact = 10 * (step_s + each_s * load)
        assert exact / 1.5 < curve.seconds(load) < 1.5 * exact


@given(
    st.lists(
        st.tuples(st.floats(0.5, 5000), st.integers(0, 500), st.floats(1e-6, 1e3)), max_size=200
    )
)
def test_any_samples_give_seconds_that_are_not_negative_and_rise_with_the_load(seen):
    curve = LoadCurve()
    for load, work, seconds in seen:
        curve.add(load, work, seconds)
    found = [curve.seconds(load) for load in (0, 1, 10, 100)]
    if None not in found:
        assert found[0] >= 0
        assert found == sorted(found)


def test_an_engine_that_is_no_slower_with_more_load_has_no_limit():
    assert learn(LoadCurve(), [2, 8], 1.0, 0.0).share(1000) == 0.0


def test_one_slow_request_moves_little():
    curve = learn(LoadCurve(), LOADS, 1.0, 0.2)
    before = curve.share(16)
    curve.add(16, 10, 200.0)
    assert before / 1.5 <= curve.share(16) <= 1.5 * before


def test_a_few_samples_are_not_enough():
    curve = learn(LoadCurve(), LOADS, 1.0, 0.2, count=7)
    assert curve.share(8) is curve.seconds(8) is None
    learn(curve, LOADS, 1.0, 0.2, count=1)
    assert None not in (curve.share(8), curve.seconds(8))


def test_the_curve_follows_an_engine_that_changes():
    curve = learn(LoadCurve(), LOADS, 1.0, 1.0)
    assert curve.share(8) == pytest.approx(8 / 9, rel=1e-2)
    learn(curve, LOADS, 8.0, 1.0, count=400)
    assert curve.share(8) == pytest.approx(8 / 16, rel=1e-2)
    learn(curve, [16], 8.0, 1.0, count=5000)
    assert curve.share(8) is None, "loads that are no longer seen are forgotten"
