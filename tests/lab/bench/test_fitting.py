"""The n of a strategy at a mean cost."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.lab.bench.runs import WANTED

from tts.base.errors import ConfigError
from tts.lab.bench.fitting import PILOT_PROBLEMS, fit_n, pilot_of
from tts.lab.bench.group_run import run_all
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.bench.single_run import resume_bench, run_bench
from tts.lab.observer import Observer
from tts.runs.config import Limits
from tts.runs.folder import read_config
from tts.runs.groups import read_group
from tts.runs.summary import read_summary
from tts.session import AsyncSession
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
    assert len(set(tried)) == len(tried) <= 6
    step = getattr(found.config, "beam_width", 1)
    if found.cost > target:
        assert found.config.n == step
    elif found.config.n < 4000:
        close = found.cost >= 0.97 * target
        assert close or each * (found.config.n + step) ** bend > target or len(tried) == 6


def test_the_smallest_n_is_taken_where_all_cost_too_much():
    found, _ = fit("beam-search", lambda n: 100 * n, 50)
    assert (found.config.n, found.config.beam_width, found.cost) == (1, 1, 100)


def test_an_n_that_is_not_used_up_does_not_grow():
    found, tried = fit("adaptive-vote", lambda n: 60 * min(n, 11), 10_000)
    assert found.cost == 660
    assert max(tried) <= 8 * 4**3


def test_one_measurement_by_chance_does_not_end_the_growth_of_n():
    noise = iter([1.2, 0.9, 1.1, 0.9, 1.0, 1.0])
    found, _ = fit("best-of-n", lambda n: (0.37 + 0.0019 * n) * next(noise), 1.0)
    assert found.cost > 0.8


def test_no_valid_n_is_an_error():
    def configured(n):
        raise ConfigError("never")

    async def measure(config):
        return math.nan

    with pytest.raises(ConfigError, match="No n from 1 to"):
        asyncio.run(fit_n(configured, measure, 10))


@given(st.integers(1, 3000))
def test_a_pilot_is_a_sample_of_all_problems_and_always_the_same(count):
    pilot = pilot_of(range(count))
    assert pilot == pilot_of(range(count))
    assert len(set(pilot)) == len(pilot) == min(PILOT_PROBLEMS, count)
    assert set(pilot) <= set(range(count))


def test_a_pilot_has_every_level_where_levels_go_in_cycles():
    """Every k-th problem of a list would lack some of them."""
    for levels in (4, 5, 9, 25):
        assert {problem % levels for problem in pilot_of(range(500))} == set(range(levels))


BUDGET = 150


@pytest.fixture
def sessions(monkeypatch):
    """The deployments of opened sessions."""
    deployments, enter = [], AsyncSession.__aenter__

    def opened(session):
        deployments.append(session.deployment)
        return enter(session)

    monkeypatch.setattr(AsyncSession, "__aenter__", opened)
    return deployments


def asked(strategy="best-of-n", budget=BUDGET, parameters=(), **more):
    given = {"max_tokens": 16, **dict(parameters)}
    limits = Limits(budget_tokens=budget)
    return replace(WANTED, limit=4, strategy=strategy, parameters=given, limits=limits, **more)


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("strategy", ["best-of-n", "beam-search", "rebase"])
def test_the_budget_chooses_n_and_cuts_nothing_off(tmp_path, strategy, sessions):
    """n stayed 16: beam search answered no problem, and best-of-n took three times the budget."""
    folder = run_bench(asked(strategy), tmp_path / "run", Observer())
    summary = read_summary(folder)
    assert 1 <= summary.n < 16
    assert summary.fitted_to == {"budget_tokens": BUDGET}
    assert summary.limits is None
    assert summary.generated_tokens < 1.5 * BUDGET * summary.problems
    assert read_config(folder)["parameters"]["n"] == summary.n
    assert len(sessions) == 1, "n is fitted in the session of the run"
    assert resume_bench(folder, None, Observer()) == folder


@pytest.mark.usefixtures("engines")
def test_it_is_the_n_that_all_strategies_together_would_get(tmp_path, sessions):
    single = read_summary(run_bench(asked("mcts"), tmp_path / "run", Observer()))
    names = ("greedy", "beam-search", "mcts")
    _, members = read_group(run_all(asked("all"), tmp_path / "all", Observer(), names=names))
    fitted = {name: member.parameters["n"] for member in members for name in member.votes}
    assert fitted["mcts"] == single.n
    assert len(sessions) == 2


@pytest.mark.usefixtures("engines")
def test_a_small_budget_narrows_the_beams_unless_their_width_is_given(tmp_path):
    narrow = read_summary(run_bench(asked("beam-search", 20), tmp_path / "a", Observer()))
    assert narrow.n == narrow.parameters["beam_width"] < 4
    wide = asked("beam-search", 20, parameters={"beam_width": 4})
    assert read_summary(run_bench(wide, tmp_path / "b", Observer())).n == 4


@pytest.mark.usefixtures("engines")
def test_an_n_that_is_given_makes_the_budget_a_limit(tmp_path):
    folder = run_bench(asked("beam-search", 20, parameters={"n": 16}), tmp_path / "run", Observer())
    summary = read_summary(folder)
    assert summary.n == 16
    assert summary.limits == {"budget_tokens": 20}
    assert summary.limited == {"tokens": 4}


@pytest.mark.usefixtures("engines")
def test_shards_find_the_same_n_and_make_one_run(tmp_path):
    whole = read_summary(run_bench(asked(), tmp_path / "whole", Observer()))
    shards = [run_bench(asked(shard=f"{n}/2"), tmp_path / str(n), Observer()) for n in (1, 2)]
    merged = read_summary(merge_runs(shards, tmp_path / "merged"))
    assert (merged.n, merged.tree_digest) == (whole.n, whole.tree_digest)
