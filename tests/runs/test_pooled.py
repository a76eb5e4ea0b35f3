"""Runs of several seeds taken together, and compared with the best at their budget."""

from dataclasses import replace

import pytest
from tests.reports.figures.test_group_figures import graded, row

from tts.runs.pooled import best_at, pool
from tts.runs.statistics import share_difference_95

BUDGET = {"budget_tokens": 500}


def run(strategy, right, *, seed=0, n=4, budget=None, tokens=400.0):
    graded_of = graded(right)
    return row(
        strategy,
        int(tokens),
        right / 10,
        seed=seed,
        n=n,
        right=graded_of,
        budget=budget or {},
        tokens_per_problem=tokens,
        seconds_per_problem=1.0,
    )


def test_seeds_are_one_and_a_fitted_n_may_differ():
    rows = [
        run("mcts", 4, budget=BUDGET, n=3, tokens=300),
        run("mcts", 6, budget=BUDGET, n=5, seed=1, tokens=500),
        run("dvts", 9, budget=BUDGET, n=8),
        run("dvts", 9, budget={"budget_tokens": 1000}, n=16),
    ]
    found = pool(rows)
    assert [(each.name, each.n, each.budget) for each in found] == [
        ("dvts", "8", (("budget_tokens", 500),)),
        ("mcts", "3 to 5", (("budget_tokens", 500),)),
        ("dvts", "16", (("budget_tokens", 1000),)),
    ]
    mcts = found[1]
    assert (mcts.tokens, mcts.seconds, mcts.accuracy) == (400, 1.0, 0.5)
    assert mcts.right["4"] == {0: False, 1: True}


def test_runs_that_were_not_fitted_stay_apart_by_their_n():
    found = pool([run("dvts", 9, n=16), run("dvts", 5, n=4), run("dvts", 7, n=4, seed=1)])
    assert [(each.n, len(each.rows)) for each in found] == [("16", 1), ("4", 2)]


def test_a_gain_is_that_of_the_same_problems():
    best, other = pool([run("dvts", 9, budget=BUDGET), run("mcts", 4, budget=BUDGET)])
    gain = other.gain_over(best)
    assert (gain.mean, (gain.low, gain.high)) == (-0.5, share_difference_95(0, 5, 10))
    strange = replace(best.rows[0], right={"another": True})
    assert other.gain_over(pool([strange])[0]) is None


def test_a_problem_counts_once_however_many_seeds_there_are():
    rows = [run("dvts", 8, seed=seed) for seed in range(50)]
    rows += [run("mcts", 4, seed=seed) for seed in range(50)]
    best, other = pool(rows)
    gain = other.gain_over(best)
    error = (4 * (1 - 0.4) ** 2 + 6 * 0.4**2) ** 0.5 / (9 * 10) ** 0.5
    assert gain.mean == pytest.approx(-0.4)
    assert gain.high - gain.mean == pytest.approx(1.96 * error)


def test_the_best_of_a_budget_is_the_cheaper_of_equals():
    rows = [
        run("rebase", 9, budget=BUDGET, tokens=490),
        run("dvts", 9, budget=BUDGET, tokens=480),
        run("mcts", 4, budget=BUDGET),
    ]
    (best,) = best_at(pool(rows)).values()
    assert best.name == "dvts"


def test_runs_without_references_are_left_out():
    assert pool([row("dvts", 1, None, high=0.5)]) == []
