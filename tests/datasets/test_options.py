"""Options of a dataset: as run.json keeps them, draws by level."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tts.base.errors import DatasetError
from tts.datasets.load import load_dataset, load_problems
from tts.datasets.options import DatasetOptions, Shard, draw_by_level, interleaved
from tts.lab.bench.single_run import dataset_options, gather_problems
from tts.problem import Problem
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


LEVELS = st.lists(st.sampled_from([1, 2, 10, "hard"]), min_size=1, max_size=40)


def problems_of(levels):
    return [Problem(f"p{n}", f"{n}?", "1", level) for n, level in enumerate(levels)]


@given(LEVELS, SEEDS, st.randoms())
def test_a_draw_has_as_many_of_each_level_whatever_the_order(levels, seed, random):
    problems = problems_of(levels)
    least = min(Counter(map(str, levels)).values())
    drawn = draw_by_level(problems, least, seed)
    assert set(Counter(str(p.level) for p in drawn).values()) == {least}
    assert len(set(drawn)) == len(drawn)
    random.shuffle(problems)
    assert draw_by_level(problems, least, seed) == drawn


@given(LEVELS, SEEDS)
def test_levels_take_turns_and_a_smaller_draw_is_the_beginning_of_a_larger(levels, seed):
    problems = problems_of(levels)
    least = min(Counter(map(str, levels)).values())
    largest = draw_by_level(problems, least, seed)
    for count in range(1, least):
        smaller = draw_by_level(problems, count, seed)
        assert smaller == largest[: len(smaller)]
    for end in range(len(largest)):
        seen = Counter(str(p.level) for p in largest[:end])
        assert not seen or max(seen.values()) - min(seen.get(str(v), 0) for v in levels) <= 1


def test_levels_ascend_as_numbers_and_another_seed_draws_others():
    problems = problems_of([10, 2, "hard", 1] * 30)
    assert [p.level for p in draw_by_level(problems, 1, 0)] == [1, 2, 10, "hard"]
    draws = [draw_by_level(problems, 5, seed) for seed in range(4)]
    assert all(one != other for one, other in pairwise(draws))


def test_every_problem_is_drawn_about_as_often():
    problems = problems_of([1] * 20)
    drawn = Counter(p.id for seed in range(400) for p in draw_by_level(problems, 5, seed))
    assert all(60 <= drawn[p.id] <= 145 for p in problems)  # 100 expected, 8.7 its deviation


def test_a_level_with_too_few_and_a_problem_without_one_are_named():
    with pytest.raises(DatasetError, match="Level 2 has 1 problems, fewer than 2"):
        draw_by_level(problems_of([1, 1, 2]), 2, 0)
    with pytest.raises(DatasetError, match="'p1' has no level") as caught:
        draw_by_level(problems_of([1, None]), 1, 0)
    assert "--columns level=" in caught.value.hint
    with pytest.raises(DatasetError, match="0 problems per level"):
        load_problems("demo", per_level=0)


def test_any_column_can_be_the_level_and_the_limit_cuts_the_draw(write):
    rows = [{"problem": f"{n}?", "answer": n, "subject": "ab"[n % 2]} for n in range(20)]
    columns = {"level": "subject"}
    drawn = load_problems(write(*rows), columns=columns, per_level=4, limit=7, seed=3)
    assert Counter(p.level for p in drawn) == {"a": 4, "b": 3}


def test_demo_problems_by_level():
    drawn = Counter(p.level for p in load_problems("demo", per_level=3))
    assert drawn == dict.fromkeys(range(1, 6), 3)


def test_128_problems_of_math_over_five_levels(published):
    file = published("math500_dev.jsonl")
    drawn = load_problems(str(file), per_level=8, limit=38, seed=1)  # of 100 problems, not 500
    assert Counter(p.level for p in drawn) == {1: 8, 2: 8, 3: 8, 4: 7, 5: 7}
