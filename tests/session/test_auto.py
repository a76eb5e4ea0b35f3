"""`auto` in a program: one budget for a run, exact under every schedule, resumable, logged."""

from functools import partial

import pytest
from tests.amounts import amount

from tts.problem import Problem
from tts.runs.events import ProblemSolved
from tts.runs.log import read_events
from tts.search import SampleSearchConfig
from tts.search.allocation import LAG

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(LAG + amount(4, 20))]


def digests(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


def decisions(folder):
    solved = (event for event in read_events(folder) if isinstance(event, ProblemSolved))
    return {event.problem: event.decision for event in solved}


def test_a_run_is_the_same_under_every_schedule_and_continued(session, tmp_path):
    solve = partial(session.solve_many, PROBLEMS, strategy="auto", budget_tokens=60)
    found = digests(solve(out=tmp_path / "run"))
    assert len(found) == len(PROBLEMS)
    for schedule in ("lockstep", "batched", "alternating"):
        assert digests(solve(schedule=schedule)) == found
    results = solve(out=tmp_path / "halves")
    for _ in range(LAG // 2):
        next(results)
    results.close()
    assert digests(solve(out=tmp_path / "halves", resume=True)) == found
    assert decisions(tmp_path / "halves") == decisions(tmp_path / "run")


def test_the_log_says_what_was_decided_of_each_problem(session, tmp_path):
    list(session.solve_many(PROBLEMS, strategy="auto", budget_tokens=60, out=tmp_path / "run"))
    found = decisions(tmp_path / "run")
    assert found.keys() == {problem.id for problem in PROBLEMS}
    assert all(found[str(i)].advice.cap == 60 for i in range(0, LAG, 2))
    assert all(found[str(i)].tokens <= found[str(i)].advice.cap for i in range(LAG))
    assert found[str(LAG)].advice.cap > 60


def test_a_problem_alone_is_the_first_of_a_run(session):
    alone = session.solve(PROBLEMS[0], strategy="auto", budget_tokens=60)
    first = next(iter(session.solve_many(PROBLEMS[:1], strategy="auto", budget_tokens=60)))
    assert alone.tree_digest == first.tree_digest


@pytest.mark.parametrize("budget", [1, None])
def test_any_budget_has_a_result(session, budget):
    found = session.solve(PROBLEMS[0], strategy="auto", budget_tokens=budget)
    assert sum(len(node.thought.token_ids) for node in found.tree) <= (budget or 10**9)


class Endless(SampleSearchConfig):
    """Parameters of a program's own search, which goes on until its budget is spent."""

    TAKES_BUDGET = True


@pytest.mark.parametrize("budget", [60, None])
def test_an_own_search_that_takes_its_budget_waits_for_no_advice(session, budget):
    """From the 33rd problem on it waited for decisions that only `auto` takes."""
    results = list(session.solve_many(PROBLEMS, strategy=Endless(n=8), budget_tokens=budget))
    assert len(results) == len(PROBLEMS)
    assert {result.limit for result in results} == {budget and "tokens"}
