"""How it is measured: closed loops in rounds, on virtual time; the saturation point they show."""

import asyncio
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.tuning.samples import LOADS, samples_of

from tts.build.spec import load_deployment
from tts.lab.simulation.scenario import run_virtual
from tts.lab.tuning.measure import (
    LEAST_ROUNDS,
    ROOM,
    ROUNDS,
    SHARE,
    LoadSample,
    Measured,
    SaturationPoint,
    analyse,
    find_saturation_point,
    levels,
    measure,
    measure_load,
    propose,
    saturation_point,
    send_all,
)
from tts.lab.tuning.recorded_requests import EngineUnderLoad, LoadRequest


class Batching:
    """An engine on virtual time: a request of so many tokens in steps that all share."""

    def __init__(self, step_s, each_s):
        self.step_s, self.each_s = step_s, each_s
        self.running = self.most = 0

    def request(self, tokens, cost=1):
        async def send():
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(tokens):
                await asyncio.sleep(self.step_s + self.each_s * self.running)
            self.running -= 1
            return tokens

        return LoadRequest(cost, send)


def looped(requests, load):
    async def go():
        return await measure_load(requests, load, asyncio.get_running_loop().time)

    return run_virtual(go())


@given(st.floats(1e-3, 1.0), st.floats(1e-4, 1.0), st.integers(1, 40), st.integers(1, 20))
def test_a_closed_loop_measures_what_the_formula_says(step_s, each_s, load, tokens):
    engine = Batching(step_s, each_s)
    sample = looped([engine.request(tokens) for _ in range(4 * load)], load)
    assert engine.most == load
    per_step = step_s + each_s * load
    assert sample.tokens_per_s == pytest.approx(load / per_step, rel=1e-6)
    assert sample.latency_s == pytest.approx(tokens * per_step, rel=1e-6)
    # Little's law
    assert sample.requests_per_s * sample.latency_s == pytest.approx(load, rel=1e-6)


@pytest.mark.parametrize(("cost", "most"), [(1, 7), (3, 2), (7, 1), (100, 1)])
def test_a_budget_is_filled_and_holds_but_for_a_request_that_is_larger(cost, most):
    engine = Batching(1.0, 0.0)
    looped([engine.request(1, cost) for _ in range(20)], 7)
    assert engine.most == most


def test_requests_that_never_fill_the_loop_measure_nothing():
    assert looped([Batching(1.0, 0.0).request(1)], 8) == LoadSample(8, 0.0, 0.0, 0.0)
    assert looped([], 8) == LoadSample(8, 0.0, 0.0, 0.0)


def measured(seconds, loads=(1, 2, 4)):
    engine, order, warmed = Batching(1.0, 0.1), [], []

    def warm_up(measurement, count):
        warmed.append((measurement, count))
        return [engine.request(1)]

    loadable = EngineUnderLoad(
        "generator", loads, 1.0, 4, lambda _: repeat(engine.request(3)), warm_up
    )
    into = Measured("generator", 4)

    def noted(load, round_):
        order.append((round_, load))

    async def go():
        clock = asyncio.get_running_loop().time
        await measure(loadable, seconds, into, first=100, on_load=noted, clock=clock)
        return clock()

    return into, order, warmed, run_virtual(go())


def test_rounds_go_up_and_down_and_the_first_is_discarded():
    into, order, warmed, took = measured(20_000)
    assert order[:6] == [(0, 4), (0, 2), (0, 1), (1, 1), (1, 2), (1, 4)]
    assert len(order) == 3 * (ROUNDS + 1)
    assert [sample.load for sample in into.samples] == [load for _, load in order[3:]]
    assert [number for number, _ in warmed] == list(range(100, 100 + len(order)))
    by_load = {load: set() for load in (1, 2, 4)}
    for (_, load), (_, count) in zip(order[3:], warmed[3:], strict=True):
        by_load[load].add(count)
    assert all(len(counts) == 1 for counts in by_load.values()), "other work in another round"
    assert 0.3 * 20_000 < took < 20_000


def test_too_little_time_still_gives_the_least_rounds():
    into, order, _, _ = measured(1)
    assert order[-1][0] == LEAST_ROUNDS
    assert [level.repeats for level in levels(into.samples)] == [LEAST_ROUNDS] * 3


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 10), st.randoms())
def test_everything_is_sent_once_in_order_within_the_budget(costs, budget, random):
    started, in_flight = [], []

    async def send(work):
        started.append(work)
        in_flight.append(work)
        load = sum(costs[place] for place in in_flight)
        assert load <= budget or len(in_flight) == 1
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        in_flight.remove(work)

    asyncio.run(send_all(range(len(costs)), costs.__getitem__, budget, send))
    assert started == list(range(len(costs)))
    assert in_flight == []


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 10), st.lists(st.floats(0.9, 1.1), min_size=3, max_size=6))
def test_the_interval_holds_the_saturation_point(step_s, noise):
    found = saturation_point(samples_of(step_s, 1.0, LOADS, noise))
    wanted = SHARE * LOADS[-1] / (step_s + LOADS[-1])
    exact = wanted * step_s / (1 - wanted)
    assert found == saturation_point(samples_of(step_s, 1.0, LOADS, noise)), "drawn differently"
    if found.load is None:
        assert exact > LOADS[-1] / 4
    else:
        assert found.load == pytest.approx(max(1, exact), rel=1e-6)
        assert found.low - 1e-9 <= found.load
        assert found.high is None or found.load <= found.high + 1e-9


def test_samples_without_noise_have_no_interval_and_a_load_measured_once_counts_for_nothing():
    samples = samples_of(1.0, 1.0, LOADS, (1.0, 1.0))
    found = saturation_point(samples)
    assert found.low == pytest.approx(found.load) == pytest.approx(found.high)
    assert levels([*samples, LoadSample(1024, 50.0, 1.0, 1.0)]) == levels(samples)


def test_an_interval_that_reaches_beyond_what_was_measured_is_open():
    noise = {1: (1.0, 1.0), 2: (1.9, 1.9), 4: (2.0, 3.0), 8: (2.0, 3.0)}
    samples = [LoadSample(load, rate, 1.0, 1.0) for load, rates in noise.items() for rate in rates]
    assert saturation_point(samples).high is None


@pytest.mark.parametrize(
    ("role", "found", "value", "why"),
    [
        ("generator", SaturationPoint(20, 10, 31.2), 32, "upper end"),
        ("generator", SaturationPoint(20, 10, 200), 64, "max_batch_size"),
        ("generator", SaturationPoint(20, 10, None), 64, "max_batch_size"),
        ("generator", SaturationPoint(None, None, None), 64, "max_batch_size"),
        ("verifier", SaturationPoint(900, 800, 1234), 1300, "upper end"),
        ("verifier", SaturationPoint(100, 100, 120), 512, "max_seq_len"),
        ("verifier", SaturationPoint(None, None, None), 5100, "max_batch_size requests"),
    ],
)
def test_the_budget_is_the_upper_end_within_limits(role, found, value, why):
    full_batch = 64 if role == "generator" else 5012.3
    proposal = propose(role, found, full_batch, load_deployment("demo"))
    assert (proposal.value, proposal.present) == (value, 64 if role == "generator" else 4096)
    assert why in proposal.why


def test_an_engine_with_fewer_than_two_levels_gets_no_proposal():
    spec = load_deployment("demo")
    for samples in ([], samples_of(1.0, 1.0, [4], (1.0, 1.0)), samples_of(1.0, 1.0, LOADS)):
        assert analyse(Measured("generator", 64, samples), spec).proposal is None
    result = analyse(Measured("generator", 64, samples_of(1.0, 1.0, LOADS, (1.0, 1.0))), spec)
    assert result.proposal == propose("generator", result.saturation, 64, spec)


positive = st.floats(1e-3, 1e3)


@given(positive, positive)
def test_the_saturation_point_is_where_the_formula_says(step_s, each_s):
    def throughput(load):
        return load / (step_s + each_s * load)

    found = find_saturation_point([(load, throughput(load)) for load in LOADS])
    wanted = SHARE * throughput(LOADS[-1])  # the curve always rises
    expected = wanted * step_s / (1 - wanted * each_s)
    if found is None:
        assert expected > LOADS[-1] / ROOM / 2  # the next larger load has too little beyond it
    else:
        assert found == pytest.approx(max(expected, 1), rel=1e-6)
        assert found <= LOADS[-1] / ROOM


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
        [(1, 10.0), (2, 19.0), (4, 35.0), (8, 60.0)],  # it still rises
        [(1, 10.0), (2, 100.0), (3, 100.0)],  # too little beyond
    ],
)
def test_no_saturation_point_was_seen(points):
    assert find_saturation_point(points) is None


def test_an_engine_that_gains_nothing_has_its_saturation_point_at_the_smallest_load():
    assert find_saturation_point([(2, 50.0), (4, 50.0), (8, 40.0)]) == 2
    assert find_saturation_point([(2, 50.0), (4, 95.0), (8, 100.0)]) == 4
