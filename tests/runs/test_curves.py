"""Curves: smaller runs inside one run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import solved as plain_solved

from tts.grading.votes import Group, right_by_rule
from tts.runs.curves import AccuracyOverN, sizes
from tts.runs.events import LoggedAnswer, LoggedCompletion
from tts.search import Completion

RULES = ("best", "weighted", "majority")


def points(problems, n, unit, rule):
    curve = AccuracyOverN(n, unit)
    for problem in problems:
        curve.add(problem)
    return curve.points(rule)


def event(nodes, scores, group_of, groups):
    """A solved problem; like a search's result, its completions are not in path order."""
    completions = tuple(map(LoggedCompletion, nodes, scores, group_of))
    return plain_solved(
        "a",
        1.0,
        correct={},
        completions=completions[::-1],
        groups=tuple(LoggedAnswer(group.answer, group.correct) for group in groups),
    )


@st.composite
def solved(draw, n, unit=1):
    """A problem with n completions, in units of `unit`."""
    groups = [Group(f"a{i}", draw(st.booleans())) for i in range(4)]
    group_of = draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    scores = draw(st.lists(st.integers(0, 10).map(lambda s: s / 10), min_size=n, max_size=n))
    nodes = [(first, 0, first % 3) for first in range(n)] if unit > 1 else [(i,) for i in range(n)]
    return event(nodes, scores, group_of, groups)


def right_of_all(problem, rule):
    done = sorted(problem.completions, key=lambda logged: logged.node)
    completions = [Completion(d.node, "", d.score) for d in done]
    groups = [Group(group.answer, group.correct) for group in problem.groups]
    return right_by_rule(completions, [d.group for d in done], groups)[rule]


@pytest.mark.parametrize(
    ("n", "unit", "found"),
    [(1, 1, [1]), (8, 1, [1, 2, 4, 8]), (12, 1, [1, 2, 4, 8, 12]), (16, 4, [4, 8, 16])],
)
def test_sizes_double_up_to_n(n, unit, found):
    assert sizes(n, unit) == found


@given(st.data(), st.integers(1, 20), st.integers(1, 3))
def test_at_its_own_n_a_curve_is_the_run(data, n, unit):
    n *= unit
    problems = data.draw(st.lists(solved(n, unit), min_size=1, max_size=4))
    for rule in RULES:
        last = points(problems, n, unit, rule)[-1]
        expected = sum(right_of_all(problem, rule) for problem in problems) / len(problems)
        assert (last.n, last.blocks) == (n, 1)
        assert last.accuracy == round(expected, 4)


@given(st.data(), st.integers(1, 20))
def test_at_one_every_rule_is_the_mean_over_chains(data, n):
    problems = data.draw(st.lists(solved(n), min_size=1, max_size=4))
    shares = [
        sum(d.group >= 0 and p.groups[d.group].correct for d in p.completions) / n for p in problems
    ]
    for rule in RULES:
        first = points(problems, n, 1, rule)[0]
        assert first.n == 1
        assert first.accuracy == first.pass_at_n == round(sum(shares) / len(shares), 4)


@given(st.data(), st.integers(1, 20))
def test_no_rule_beats_pass_and_pass_grows_where_blocks_nest(data, n):
    found = points([data.draw(solved(n))], n, 1, "best")
    assert all(point.accuracy <= point.pass_at_n for point in found)
    whole = [point for point in found if n % point.n == 0]
    assert [p.pass_at_n for p in whole] == sorted(p.pass_at_n for p in whole)


def test_blocks_are_consecutive_and_what_is_left_over_is_not_used():
    groups = [Group("1", True), Group("2", False)]
    problem = event([(i,) for i in range(5)], [0.1, 0.9, 0.9, 0.1, 0.5], [0, 1, 0, 1, 0], groups)
    found = {point.n: point for point in points([problem], 5, 1, "best")}
    assert found[1].accuracy == 0.6
    assert (found[2].accuracy, found[2].blocks) == (0.5, 2)  # 0 and 1: wrong; 2 and 3: right
    assert (found[4].accuracy, found[4].blocks) == (0.0, 1)  # of two equal ones the first


def test_subtrees_stay_whole_whatever_their_first_index_is():
    groups = [Group("1", True), Group("2", False)]
    nodes = [(0, 0), (0, 1), (3, 0), (3, 1)]  # width 2: subtree 0 and subtree 1
    problem = event(nodes, [0.5] * 4, [0, 0, 1, 1], groups)
    found = points([problem], 4, 2, "majority")
    assert [(point.n, point.accuracy) for point in found] == [(2, 0.5), (4, 1.0)]


def test_problems_without_a_reference_are_not_in_a_curve():
    unknown = plain_solved("a", 1.0, completions=(LoggedCompletion((0,), None, -1),))
    known = event([(0,)], [None], [0], [Group("1", True)])
    assert points([unknown], 1, 1, "majority") is None
    assert points([known, unknown], 1, 1, "majority") == points([known], 1, 1, "majority")
