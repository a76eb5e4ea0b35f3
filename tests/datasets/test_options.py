"""How run.json keeps the way a dataset is read, and what runs of before it kept that have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tts.base.errors import DatasetError
from tts.datasets.load import load_dataset, load_problems
from tts.datasets.options import DatasetOptions, Shard, interleaved
from tts.lab.bench.single_run import dataset_options, gather_problems
from tts.runs.config import RunConfig, parse_config
from tts.runs.folder import PROBLEMS
from tts.session.plan import Plan
from tts.session.strategy import choose

SEEDS = st.integers(0, 99)
OPTIONS = {
    "dataset_seed": st.none() | SEEDS,
    "columns": st.dictionaries(
        st.sampled_from(["problem", "answer", "level"]), st.text(min_size=1)
    ),
    "answers": st.none() | st.sampled_from(["number", "letter"]),
    "per_level": st.none() | st.integers(1, 9),
    "start": st.none() | st.integers(0, 9),
    "shard": st.none() | st.sampled_from(["1/3", "3/3"]),
}
COT = RunConfig(deployment_source="demo", dataset="demo", limit=5, seed=7, strategy="greedy")


@given(st.fixed_dictionaries(OPTIONS), SEEDS)
def test_options_survive_run_json(tmp_path_factory, options, seed):
    config = replace(COT, seed=seed, vote="majority", deployment="demo", **options)
    again = parse_config(config.to_json(), tmp_path_factory.getbasetemp() / "run.json")
    assert dataset_options(again) == dataset_options(config)
    chosen = dataset_options(again)
    assert chosen.seed == (seed if options["dataset_seed"] is None else options["dataset_seed"])
    assert chosen.shard == (Shard.parse(options["shard"]) if options["shard"] else None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"answers": "roman"},
        {"per_level": 0},
        {"start": -1},
        {"columns": {"title": "a"}},
        {"shard": "3"},
    ],
)
def test_options_that_no_dataset_can_have_are_refused(wrong):
    with pytest.raises(DatasetError):
        dataset_options(replace(COT, **wrong))


def test_one_seed_is_both_unless_two_are_given():
    assert gather_problems(COT)[1] == load_problems("demo", limit=5, seed=7)
    other = replace(COT, dataset_seed=3)
    assert gather_problems(other)[1] == load_problems("demo", limit=5, seed=3)


def test_run_json_keeps_both_seeds_but_none_of_problems_that_a_program_gave(tiny_deployment):
    def kept(config):
        strategy = choose("greedy", tiny_deployment, {})
        return Plan(config, tiny_deployment, (), strategy).config.to_json()

    assert kept(COT)["dataset_seed"] == 7
    drawn = kept(replace(COT, dataset_seed=3, per_level=2))
    assert (drawn["seed"], drawn["dataset_seed"], drawn["per_level"]) == (7, 3, 2)
    assert "dataset_seed" not in kept(replace(COT, dataset=PROBLEMS))


@given(st.lists(st.integers(), max_size=40), st.integers(1, 9))
def test_shards_are_a_partition_in_order_and_their_sizes_differ_by_one_at_most(items, count):
    parts = [Shard(number, count).of(items) for number in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert interleaved(parts) == items


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=5))
def test_parts_that_are_not_shards_of_one_list_do_not_fit(parts):
    whole = interleaved(parts)
    if whole is not None:
        assert [Shard(n, len(parts)).of(whole) for n in range(1, len(parts) + 1)] == parts


def test_a_part_begins_where_it_is_asked_to(write):
    file = str(write(*({"problem": f"{number}?"} for number in range(9))))
    for dataset in ("demo", file):
        whole = load_problems(dataset, limit=9)
        for start, limit in ((0, 3), (3, 4), (7, 5)):
            part = load_dataset(dataset, limit=limit, options=DatasetOptions(start=start)).problems
            wanted = whole[start : start + limit]
            assert part[: len(wanted)] == wanted
            assert len(part) == (len(wanted) if dataset == file else limit)
    with pytest.raises(DatasetError, match="to be number 9, and there are 9"):
        load_dataset(file, options=DatasetOptions(start=9))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/3"])
def test_what_names_no_shard_is_refused_and_so_is_one_without_problems(text):
    with pytest.raises(DatasetError, match=r"shard|Shard"):
        Shard.parse(text)
    with pytest.raises(DatasetError, match="Shard 4/4 of 3 problems is empty"):
        load_dataset("demo", limit=3, options=DatasetOptions(shard=Shard(4, 4)))
