"""The saturation point of a curve lies where the formula says, and nowhere if none was seen."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.scheduling.load_curve import ROOM, SHARE, LoadCurve, find_saturation_point

LOADS = [2**power for power in range(9)]

positive = st.floats(1e-3, 1e3)
shares = st.floats(0.5, 0.97)


def throughput(load, step_s, each_s):
    return load / (step_s + each_s * load)


def formula(step_s, each_s, share, largest):
    """The load whose throughput is a share of the largest load's; the curve always rises."""
    wanted = share * throughput(largest, step_s, each_s)
    return wanted * step_s / (1 - wanted * each_s)


def learn(curve, loads, step_s, each_s, *, count=20, noise=0.0, seed=0):
    """Requests of random length at each load, each as slow as the others that share its steps."""
    rng = random.Random(seed)
    for load in loads:
        for _ in range(count):
            tokens = rng.randint(5, 15)
            took = tokens * (step_s + each_s * load)
            curve.add(load, tokens, took * rng.uniform(1 - noise, 1 + noise))


@given(positive, positive, shares)
def test_the_saturation_point_is_where_the_formula_says(step_s, each_s, share):
    found = find_saturation_point(
        [(load, throughput(load, step_s, each_s)) for load in LOADS], share
    )
    expected = formula(step_s, each_s, share, LOADS[-1])
    if found is None:
        assert expected > LOADS[-1] / ROOM / 2  # the next larger load has too little beyond it
    else:
        assert found == pytest.approx(max(expected, 1), rel=1e-6)
        assert found <= LOADS[-1] / ROOM


@given(positive, positive, st.integers(0, 2**32))
def test_a_noisy_curve_has_its_saturation_point_within_two_buckets(step_s, each_s, seed):
    curve = LoadCurve()
    learn(curve, LOADS, step_s, each_s, count=60, noise=0.2, seed=seed)
    found = curve.saturation_point()
    exact = max(formula(step_s, each_s, SHARE, LOADS[-1]), 1)
    if found is None:
        assert exact > LOADS[-1] / 8
    else:
        assert exact / 4 <= found <= 4 * exact + 1


samples = st.lists(
    st.tuples(st.floats(0.5, 5000), st.integers(0, 500), st.floats(1e-6, 1e3)), max_size=200
)


@given(samples, st.integers(-8, 8))
def test_any_samples_give_a_saturation_point_that_was_seen_or_none(seen, scale):
    curve, scaled = LoadCurve(), LoadCurve()
    for load, work, seconds in seen:
        curve.add(load, work, seconds)
        scaled.add(load, work, seconds * 2.0**scale)
    found = curve.saturation_point()
    assert scaled.saturation_point() == found  # a slower clock changes nothing
    if found is not None:
        assert 1 <= found <= max(load for load, _, _ in seen)


@given(st.lists(positive, min_size=1, max_size=9), positive)
def test_points_scaled_by_a_common_factor_have_the_same_saturation_point(heights, factor):
    points = list(zip(LOADS, heights, strict=False))
    found = find_saturation_point(points)
    scaled = find_saturation_point([(load, factor * height) for load, height in points])
    assert scaled == (None if found is None else pytest.approx(found, rel=1e-6))
    if found is not None:
        assert found <= points[-1][0] / ROOM


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(8, 100.0)],
        [(load, float(load)) for load in LOADS],
        [(1, 10.0), (2, 19.0), (4, 35.0), (8, 60.0)],
        [(1, 10.0), (2, 100.0), (3, 100.0)],
    ],
    ids=["nothing", "one load", "straight", "still rising", "too little beyond"],
)
def test_no_saturation_point_was_seen(points):
    assert find_saturation_point(points) is None


def test_an_engine_that_gains_nothing_has_its_saturation_point_at_the_smallest_load():
    assert find_saturation_point([(2, 50.0), (4, 50.0), (8, 40.0)]) == 2
    assert find_saturation_point([(2, 50.0), (4, 60.0), (8, 60.0)], share=1.0) == 4


@given(positive, positive, st.lists(st.sampled_from(LOADS), min_size=2, unique=True))
def test_the_share_of_the_limit_is_what_the_formula_says(step_s, each_s, loads):
    curve = LoadCurve()
    assert curve.share(8) is None
    learn(curve, loads[:1], step_s, each_s)
    assert curve.share(8) is None, "one load tells nothing"
    learn(curve, loads[1:], step_s, each_s)
    for load in (1, 7, 1000):
        assert curve.share(load) == pytest.approx(
            each_s * load / (step_s + each_s * load), rel=1e-2
        )


@given(positive, positive, st.lists(st.sampled_from(LOADS), min_size=2, unique=True))
def test_the_seconds_of_a_request_are_what_the_formula_says(step_s, each_s, loads):
    curve = LoadCurve()
    assert curve.seconds(8) is None
    for load in loads:
        for _ in range(20):
            curve.add(load, 10, 10 * (step_s + each_s * load))
    for load in (0, 1, 7, 1000):
        assert curve.seconds(load) == pytest.approx(
            10 * (step_s + each_s * load), rel=1e-6, abs=1e-6 * each_s * 10 * max(loads)
        )


def test_while_loads_do_not_differ_the_seconds_are_those_that_were_seen():
    curve = LoadCurve()
    for _ in range(20):
        curve.add(4, 10, 2.5)
    assert curve.seconds(0) == curve.seconds(4) == curve.seconds(64) == pytest.approx(2.5)


@given(positive, positive, st.integers(0, 2**32))
def test_a_noisy_engine_is_known_within_a_half_at_the_loads_that_were_seen(step_s, each_s, seed):
    curve = LoadCurve()
    learn(curve, LOADS, step_s, each_s, count=60, noise=0.2, seed=seed)
    mean_tokens = 10
    for load in LOADS[4:]:
        exact = mean_tokens * (step_s + each_s * load)
        assert exact / 1.5 < curve.seconds(load) < 1.5 * exact


@given(samples)
def test_any_samples_give_seconds_that_are_not_negative_and_rise_with_the_load(seen):
    curve = LoadCurve()
    for load, work, seconds in seen:
        curve.add(load, work, seconds)
    found = [curve.seconds(load) for load in (0, 1, 10, 100)]
    if None not in found:
        assert found[0] >= 0
        assert found == sorted(found)


def test_an_engine_that_is_no_slower_with_more_load_has_no_limit():
    curve = LoadCurve()
    learn(curve, [2, 8], 1.0, 0.0)
    assert curve.share(1000) == 0.0


def test_one_slow_request_moves_nothing():
    curve = LoadCurve()
    learn(curve, LOADS, 1.0, 0.2)
    before = curve.saturation_point()
    curve.add(16, 10, 200.0)
    assert before / 2 <= curve.saturation_point() <= 2 * before


def test_a_few_samples_are_not_enough():
    curve = LoadCurve()
    learn(curve, LOADS, 1.0, 0.2, count=3)
    assert curve.saturation_point() is None
    learn(curve, LOADS, 1.0, 0.2)
    assert curve.saturation_point() is not None


def test_the_curve_follows_an_engine_that_changes():
    curve = LoadCurve()
    learn(curve, LOADS, 1.0, 1.0)
    early = curve.saturation_point()
    learn(curve, LOADS, 8.0, 1.0, count=400)
    assert curve.saturation_point() > 4 * early


def test_loads_that_are_no_longer_seen_are_forgotten():
    curve = LoadCurve()
    learn(curve, LOADS, 1.0, 0.2)
    assert curve.saturation_point() is not None
    learn(curve, [16], 1.0, 0.2, count=5000)
    assert curve.saturation_point() is None
