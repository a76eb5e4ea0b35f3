"""What run.json keeps of a dataset, and what runs of before it kept that."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import DatasetError
from tts.datasets.load import load_problems, problems_of_run
from tts.datasets.options import DatasetOptions
from tts.lab.bench.request import Wanted, as_wanted, problems_of
from tts.runs.config import _Shared
from tts.runs.folder import PROBLEMS
from tts.session.plan import Plan
from tts.session.strategy import choose

SEEDS = st.integers(0, 99)
OPTIONS = st.builds(
    DatasetOptions,
    st.none() | SEEDS,
    st.dictionaries(st.sampled_from(["problem", "answer", "level"]), st.text(min_size=1)),
    st.none() | st.sampled_from(["integer", "letter"]),
    st.none() | st.integers(1, 9),
)


@given(OPTIONS, SEEDS)
def test_options_survive_run_json(options, seed):
    config = {"seed": seed} | options.to_config(seed)
    again = DatasetOptions.of_config(config)
    assert again == replace(options, seed=options.seed_of(seed))
    assert set(config) <= set(_Shared.__struct_fields__)


def test_one_seed_is_both_unless_two_are_given():
    wanted = Wanted("demo", "demo", 5, 7, "cot", "decoupled", {})
    assert problems_of(wanted) == load_problems("demo", limit=5, seed=7)
    two = replace(wanted, dataset_options=DatasetOptions(seed=3))
    assert problems_of(two) == load_problems("demo", limit=5, seed=3)


def test_a_run_of_before_there_were_two_seeds_has_the_same_problems(tmp_path, tiny_deployment):
    old = {
        "dataset": "demo",
        "deployment_source": "demo",
        "limit": 5,
        "seed": 7,
        "schedule": "decoupled",
    }
    problems = load_problems("demo", limit=5, seed=7)
    assert problems_of_run(tmp_path, old) == problems
    assert problems_of(as_wanted(old, None, "cot", {})) == problems


def test_run_json_keeps_both_seeds_but_none_of_problems_that_a_program_gave(tiny_deployment):
    strategy = choose("cot", tiny_deployment, {})
    plan = Plan(tiny_deployment, (), strategy, 7, dataset="demo")
    assert plan.to_config()["dataset_seed"] == 7
    drawn = replace(plan, dataset_options=DatasetOptions(3, per_level=2)).to_config()
    assert (drawn["seed"], drawn["dataset_seed"], drawn["per_level"]) == (7, 3, 2)
    assert "dataset_seed" not in replace(plan, dataset=PROBLEMS).to_config()


def test_a_replay_is_refused_another_draw_than_was_recorded(monkeypatch):
    from tts.build.errors import ConfigError
    from tts.lab.bench import replaying

    recorded = {
        "dataset": "demo",
        "deployment_source": "demo",
        "limit": 5,
        "seed": 7,
        "schedule": "decoupled",
        "strategy": "cot",
        "parameters": {},
    }
    source = SimpleNamespace(path="runs/old", recorded=recorded)
    monkeypatch.setattr(replaying, "open_source", lambda path: source)
    wanted = Wanted("demo", "demo", 5, 7, "cot", "decoupled", {})
    same = replace(wanted, dataset_options=DatasetOptions(seed=7))
    assert replaying.as_recorded(same, "runs/old", {"dataset_seed"}).dataset_options.seed == 7
    for options, name in (
        (DatasetOptions(seed=8), "dataset_seed"),
        (DatasetOptions(per_level=1), "per_level"),
    ):
        with pytest.raises(ConfigError, match=f"{name} is"):
            replaying.as_recorded(replace(wanted, dataset_options=options), "runs/old", {name})


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(DatasetError, match="at least 1"):
        load_problems("demo", limit=limit)
