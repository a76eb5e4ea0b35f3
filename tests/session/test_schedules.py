"""Runs whose trees are the same under every schedule, and when they are continued."""

from functools import partial

import pytest
from examples.search_and_learn import BEAM_SEARCH, BEST_OF_N, DVTS
from tests.amounts import amount

from tts.problem import Problem
from tts.runs.events import ProblemSolved
from tts.runs.log import read_events
from tts.search import SampleSearchConfig
from tts.search.allocation import MIN_PROBLEMS, Allocation
from tts.strategies.catalog import STRATEGIES

PROBLEMS = [
    Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(MIN_PROBLEMS + amount(0, 20))
]
AUTO = {"strategy": "auto", "budget_tokens": 60}


def digests(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


def decisions(folder):
    solved = (event for event in read_events(folder) if isinstance(event, ProblemSolved))
    return {event.problem: event.decision for event in solved}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (AUTO, len(PROBLEMS)),
        ({"strategy": "rebase", "n": 4}, len(PROBLEMS)),
        ({"n": 8, "budget_tokens": 60}, 6),
        ({"strategy": BEST_OF_N, "n": 8}, 4),
        ({"strategy": BEAM_SEARCH, "n": 8}, 4),
        ({"strategy": DVTS, "n": 8}, 4),
    ],
    ids=["auto", "rebase", "budget", "best-of-n", "beam-search", "dvts"],
)
def test_a_run_is_the_same_under_every_schedule_and_continued(session, tmp_path, options, count):
    solve = partial(session.solve_many, PROBLEMS[:count], **options)
    found = digests(solve(out=tmp_path / "run"))
    assert len(found) == count
    for schedule in ("lockstep", "batched", "alternating"):
        assert digests(solve(schedule=schedule)) == found
    results = solve(out=tmp_path / "halves")
    for _ in range(count // 2):
        next(results)
    results.close()
    assert digests(solve(out=tmp_path / "halves", resume=True)) == found
    assert decisions(tmp_path / "halves") == decisions(tmp_path / "run")


def test_the_log_says_what_was_decided_of_each_problem(session, tmp_path):
    list(session.solve_many(PROBLEMS, **AUTO, out=tmp_path / "run"))
    found = decisions(tmp_path / "run")
    assert found.keys() == {problem.id for problem in PROBLEMS}
    shared = Allocation(60, list(found))
    first = [decision for name, decision in found.items() if shared.stage(name) == 0]
    assert len(first) == len(PROBLEMS) // 8
    assert all(decision.advice.allowance == 120 for decision in first)
    assert len({decision.advice for decision in found.values()}) > 1


@pytest.mark.parametrize("strategy", sorted(STRATEGIES.keys() - {"auto"}))
def test_a_problems_tree_is_the_same_alone_in_any_order_and_in_shards(session, strategy):
    """One problem, one tree: only `auto` looks at other problems."""
    n = 1 if strategy == "greedy" else 4
    solve = partial(session.solve_many, strategy=strategy, n=n, seed=3)
    problems = PROBLEMS[: amount(8, 40)]
    forwards = digests(solve(problems))
    assert digests(solve(problems[::-1])) == forwards
    assert digests([*solve(problems[::2]), *solve(problems[1::2])]) == forwards
    alone = [session.solve(each, strategy=strategy, n=n, seed=3) for each in problems[:3]]
    assert digests(alone).items() <= forwards.items()


def test_a_problem_alone_is_the_first_of_a_run(session):
    alone = session.solve(PROBLEMS[0], **AUTO)
    first = next(iter(session.solve_many(PROBLEMS[:1], **AUTO)))
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
    results = list(session.solve_many(PROBLEMS, strategy=Endless(n=8), budget_tokens=budget))
    assert len(results) == len(PROBLEMS)
    assert {result.limit for result in results} == {budget and "tokens"}


def test_by_search_and_learns_rules_a_text_without_a_box_answers_its_last_number(session):
    result, free = (
        session.solve(PROBLEMS[2], strategy=each, n=8) for each in (BEST_OF_N, "best-of-n")
    )
    without_box = [done for done in free.completions if done.answer is None]
    assert without_box
    answers = {done.node: done.answer for done in result.completions}
    assert any(answers[done.node] is not None for done in without_box)
