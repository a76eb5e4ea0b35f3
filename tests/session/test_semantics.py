"""Runs by search-and-learn's rules: from the option to the answer."""

import pytest

from tts.problem import Problem

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(4)]
LITERAL = {"semantics": "search-and-learn"}


def solved(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


@pytest.mark.parametrize("strategy", ["best-of-n", "beam-search", "dvts"])
def test_the_trees_are_the_same_under_every_schedule(session, strategy):
    options = {"strategy": strategy, "n": 8, **LITERAL}
    trees = solved(session.solve_many(PROBLEMS, **options))
    for schedule in ("lockstep", "batched", "alternating"):
        assert solved(session.solve_many(PROBLEMS, schedule=schedule, **options)) == trees


def test_a_text_without_a_box_has_its_last_number_for_an_answer(session):
    (problem,) = [Problem("free", "Compute 2 + 2.")]
    result = session.solve(problem, strategy="majority-vote", n=8, **LITERAL)
    free = session.solve(problem, strategy="majority-vote", n=8)
    without_box = [done for done in free.completions if done.answer is None]
    assert without_box
    answers = {done.node: done.answer for done in result.completions}
    assert any(answers[done.node] is not None for done in without_box)


def test_a_run_is_continued_with_its_semantics(session, tmp_path):
    options = {"n": 8, "out": tmp_path, **LITERAL}
    trees = solved(session.solve_many(PROBLEMS, **options))
    assert solved(session.solve_many(PROBLEMS, resume=True, **options)) == trees
