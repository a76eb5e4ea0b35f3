"""Runs by search-and-learn's rules: from the strategy to the answer."""

import pytest
from examples.search_and_learn import BEAM_SEARCH, BEST_OF_N, DVTS

from tts.problem import Problem

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(4)]


def solved(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


@pytest.mark.parametrize("strategy", [BEST_OF_N, BEAM_SEARCH, DVTS], ids=lambda each: each.name)
def test_the_trees_are_the_same_under_every_schedule(session, strategy):
    options = {"strategy": strategy, "n": 8}
    trees = solved(session.solve_many(PROBLEMS, **options))
    for schedule in ("lockstep", "batched", "alternating"):
        assert solved(session.solve_many(PROBLEMS, schedule=schedule, **options)) == trees


def test_a_text_without_a_box_has_its_last_number_for_an_answer(session):
    (problem,) = [Problem("free", "Compute 2 + 2.")]
    result = session.solve(problem, strategy=BEST_OF_N, n=8)
    free = session.solve(problem, strategy="best-of-n", n=8)
    without_box = [done for done in free.completions if done.answer is None]
    assert without_box
    answers = {done.node: done.answer for done in result.completions}
    assert any(answers[done.node] is not None for done in without_box)


def test_a_run_is_continued(session, tmp_path):
    options = {"strategy": BEAM_SEARCH, "n": 8, "out": tmp_path}
    trees = solved(session.solve_many(PROBLEMS, **options))
    assert solved(session.solve_many(PROBLEMS, resume=True, **options)) == trees
