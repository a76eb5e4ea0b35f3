"""So many problems of each level, drawn by a seed."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import DatasetError
from tts.datasets.load import load_problems
from tts.datasets.options import draw_by_level
from tts.problem import Problem

LEVELS = st.lists(st.sampled_from([1, 2, 10, "hard"]), min_size=1, max_size=40)
SEEDS = st.integers(0, 5)


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
