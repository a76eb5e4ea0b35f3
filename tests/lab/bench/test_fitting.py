"""The n of a strategy at a mean cost."""

import asyncio
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import ConfigError
from tts.lab.bench.fitting import PILOT_PROBLEMS, fit_n, pilot_of
from tts.strategies.catalog import find_strategy


def fit(name, cost, target):
    """The fitted parameters where n costs `cost(n)`, and the n that were tried."""
    tried = []

    async def measure(config):
        tried.append(config.n)
        return cost(config.n)

    def configured(n):
        return find_strategy(name).configure({"n": n}, context=320)

    return asyncio.run(fit_n(configured, measure, target)), tried


@given(
    name=st.sampled_from(["best-of-n", "beam-search", "dvts", "mcts"]),
    each=st.floats(5, 200),
    bend=st.floats(0.8, 1.1),
    target=st.floats(500, 20_000),
)
def test_an_n_costs_nearly_the_target_and_no_more(name, each, bend, target):
    found, tried = fit(name, lambda n: each * n**bend, target)
    assert found.cost == each * found.config.n**bend
    assert len(tried) <= 6
    assert len(set(tried)) == len(tried)
    step = getattr(found.config, "beam_width", 1)
    if found.cost > target:
        assert found.config.n == step
    elif found.config.n < 4000:
        close = found.cost >= 0.97 * target
        assert close or each * (found.config.n + step) ** bend > target or len(tried) == 6


def test_the_smallest_n_is_taken_where_all_cost_too_much():
    found, _ = fit("beam-search", lambda n: 100 * n, 50)
    assert (found.config.n, found.cost) == (4, 400)


def test_an_n_that_is_not_used_up_does_not_grow():
    found, tried = fit("adaptive-vote", lambda n: 60 * min(n, 11), 10_000)
    assert found.cost == 660
    assert max(tried) <= 8 * 4 * 4


def test_no_valid_n_is_an_error():
    def configured(n):
        raise ConfigError("never")

    async def measure(config):
        return math.nan

    with pytest.raises(ConfigError, match="No n from 1 to"):
        asyncio.run(fit_n(configured, measure, 10))


@given(st.integers(0, 500))
def test_a_pilot_is_spread_over_all_problems(count):
    problems = list(range(count))
    pilot = pilot_of(problems)
    assert len(pilot) == len(set(pilot)) == min(count, PILOT_PROBLEMS)
    if count > PILOT_PROBLEMS:
        gaps = {later - earlier for earlier, later in pairwise(pilot)}
        assert max(gaps) - min(gaps) <= 1
