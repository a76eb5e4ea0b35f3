"""A budget of tokens chooses n of a single strategy, too."""

import pytest

from tts.lab.bench.group_run import run_all
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.bench.single_run import resume_bench, run_bench
from tts.lab.observer import Observer
from tts.runs.config import Limits, RunConfig
from tts.runs.folder import read_config
from tts.runs.groups import read_group
from tts.runs.summary import read_summary

BUDGET = 150


def asked(strategy="best-of-n", budget=BUDGET, **more):
    parameters = {"max_tokens": 16, **more.pop("parameters", {})}
    return RunConfig(
        deployment_source="tiny",
        dataset="demo",
        limit=4,
        strategy=strategy,
        parameters=parameters,
        limits=Limits(budget_tokens=budget),
        **more,
    )


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("strategy", ["best-of-n", "beam-search", "rebase"])
def test_the_budget_chooses_n_and_cuts_nothing_off(tmp_path, strategy):
    """n stayed 16: beam search answered no problem, and best-of-n took three times the budget."""
    folder = run_bench(asked(strategy), tmp_path / "run", Observer())
    summary = read_summary(folder)
    assert 1 <= summary.n < 16
    assert summary.fitted_to == {"budget_tokens": BUDGET}
    assert summary.limits is None
    assert summary.generated_tokens < 1.5 * BUDGET * summary.problems
    assert read_config(folder)["parameters"]["n"] == summary.n
    assert resume_bench(folder, None, Observer()) == folder


@pytest.mark.usefixtures("engines")
def test_it_is_the_n_that_all_strategies_together_would_get(tmp_path):
    single = read_summary(run_bench(asked("mcts"), tmp_path / "run", Observer()))
    _, members = read_group(run_all(asked("all"), tmp_path / "all", Observer()))
    fitted = {name: member.parameters["n"] for member in members for name in member.votes}
    assert fitted["mcts"] == single.n


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
    shards = [
        run_bench(asked(shard=f"{number}/2"), tmp_path / str(number), Observer())
        for number in (1, 2)
    ]
    merged = read_summary(merge_runs(shards, tmp_path / "merged"))
    assert (merged.n, merged.tree_digest) == (whole.n, whole.tree_digest)
