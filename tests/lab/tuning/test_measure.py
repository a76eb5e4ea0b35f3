"""How it is measured: closed loops and their rounds, on virtual time."""

import asyncio
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.lab.simulation.scenario import run_virtual
from tts.lab.tuning.measure import (
    LEAST_ROUNDS,
    ROUNDS,
    LoadSample,
    Measured,
    levels,
    measure,
    measure_load,
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
