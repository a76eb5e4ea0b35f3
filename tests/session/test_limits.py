"""Limits of each problem: a budget of tokens, which is exact, and a deadline, which is not."""

import asyncio
from functools import partial

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import HangingFrom

from tts.build.errors import ConfigError, DeadlineExceeded, RunError
from tts.lab.simulation.virtual_time import run_virtual
from tts.problem import Problem
from tts.reports.figures.run import figures_of, warning_of
from tts.reports.figures.work import token_use
from tts.reports.terminal import limit_lines
from tts.runs.folder import read_config
from tts.runs.summary import read_summary
from tts.session import Run, Session

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(6)]
BUDGET = 60


def digests(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


def tokens(result):
    return sum(len(node.thought.token_ids) for node in result.tree)


def test_a_budget_gives_the_same_trees_under_every_schedule(session):
    solve = partial(session.solve_many, PROBLEMS, n=8, budget_tokens=BUDGET)
    limited = list(solve())
    assert {result.limit for result in limited} == {"tokens"}
    assert all(0 < tokens(result) <= BUDGET for result in limited)
    for schedule in ("lockstep", "batched", "alternating"):
        assert digests(solve(schedule=schedule)) == digests(limited)
    one = session.solve(PROBLEMS[2], n=8, budget_tokens=BUDGET)
    assert (one.tree_digest, one.answers) == digests(limited)["2"]
    assert "limit='tokens'" in repr(one)


def test_a_budget_that_is_not_spent_changes_no_tree(session):
    free = list(session.solve_many(PROBLEMS, n=8))
    limited = list(session.solve_many(PROBLEMS, n=8, budget_tokens=10**6))
    assert digests(limited) == digests(free)
    assert {result.limit for result in limited} == {None}


def test_the_limit_is_in_the_results_the_log_and_the_summary(session, tmp_path):
    results = list(session.solve_many(PROBLEMS, n=8, budget_tokens=BUDGET, out=tmp_path))
    assert read_config(tmp_path)["limits"] == {"budget_tokens": BUDGET}
    assert {problem.limit for problem in Run.load(tmp_path).problems} == {"tokens"}
    summary = read_summary(tmp_path)
    assert summary.limits == {"budget_tokens": BUDGET}
    assert summary.limited == {"tokens": len(PROBLEMS)}
    (line,) = limit_lines(summary)
    assert line == "budget of 60 generated tokens a problem: spent by 6 of 6 problems"
    assert summary.unanswered == sum(result.answer is None for result in results)
    again = session.solve_many(PROBLEMS, n=8, budget_tokens=BUDGET, out=tmp_path, resume=True)
    assert {result.problem.id: result.limit for result in again} == {
        result.problem.id: "tokens" for result in results
    }


def test_a_run_without_answers_is_warned_of_and_what_was_thrown_away_is_waste(session, tmp_path):
    list(session.solve_many(PROBLEMS, n=8, budget_tokens=5, out=tmp_path))
    summary = read_summary(tmp_path)
    assert summary.unanswered == 6
    assert "cut off 6 of 6 searches, 6 of them without any answer" in warning_of(summary)
    assert summary.waste.lost_tokens > 0
    (figure,) = figures_of(Run.load(tmp_path), [token_use])
    assert "beyond the budget" in figure.reading
    assert figure.rows[-1]["count"] == summary.waste.lost_tokens
    assert summary.generated_tokens < 6 * 5 * 5, "and not that of eight beams"


def test_nothing_is_generated_on_a_guess_within_a_limit(session):
    usage = [
        session.solve(PROBLEMS[0], n=8, speculation="always", **limit).usage.generated_tokens
        for limit in ({}, {"budget_tokens": 10**6})
    ]
    assert usage[1] < usage[0]


def test_without_limits_nothing_of_them_is_kept(session, tmp_path):
    list(session.solve_many(PROBLEMS, n=4, out=tmp_path))
    assert "limits" not in read_config(tmp_path)
    assert b'"limit":' not in (tmp_path / "events.jsonl").read_bytes()
    assert limit_lines(read_summary(tmp_path)) == []
    assert warning_of(read_summary(tmp_path)) is None


def test_an_interrupted_run_with_a_budget_goes_on_to_the_same_trees(
    tiny_deployment, words, tmp_path
):
    whole = {}
    for answered in (10**6, 9):
        generator = HangingFrom(ScriptedGenerator(*words), answered)
        with Session.open(
            tiny_deployment, generator=generator, verifier=ScriptedVerifier()
        ) as session:
            folder = tmp_path / str(answered)
            solve = partial(session.solve_many, PROBLEMS, n=8, budget_tokens=BUDGET, out=folder)
            if answered == 9:
                with pytest.raises(_Cut):
                    list(solve(on_step=_cut_after(9)))
                generator.left = 10**6
                with pytest.raises(RunError, match="limits"):
                    list(session.solve_many(PROBLEMS, n=8, out=folder, resume=True))
                whole[answered] = digests(solve(resume=True))
            else:
                whole[answered] = digests(solve())
    assert whole[9] == whole[10**6]


class _Cut(Exception):
    """Ends a run in the middle."""


def _cut_after(steps):
    left = steps

    def on_step(step):
        nonlocal left
        left -= 1
        if not left:
            raise _Cut

    return on_step


def on_virtual_time(deployment, generator, verifier, wanted):
    """What `wanted` yields of a session whose timers ring when nothing else can happen."""

    async def run():
        given = {"generator": generator, "verifier": verifier}
        async with Session.open_async(deployment, **given) as session:
            return [result async for result in wanted(session)]

    return run_virtual(run())


def test_at_the_deadline_of_a_problem_its_best_answer_so_far_counts(
    tiny_deployment, words, tmp_path
):
    def chains(session):
        return session.solve_many(
            PROBLEMS[:1], strategy="majority-vote", n=8, deadline_s=5.0, out=tmp_path
        )

    generator = HangingFrom(ScriptedGenerator(*words), 3)
    (result,) = on_virtual_time(tiny_deployment, generator, ScriptedVerifier(), chains)
    assert result.limit == "deadline"
    assert len(result.completions) == 3
    assert result.tree is not None
    assert {node.path[0] for node in result.tree} == {done.node[0] for done in result.completions}
    summary = read_summary(tmp_path)
    assert summary.limited == {"deadline": 1}
    (line,) = limit_lines(summary)
    assert "passed by 1 of 1 problems" in line
    assert "depend on the time" in line


def test_a_problem_that_has_nothing_by_its_deadline_has_no_answer(tiny_deployment, words):
    generator = HangingFrom(ScriptedGenerator(*words), 0)
    with Session.open(tiny_deployment, generator=generator, verifier=ScriptedVerifier()) as session:
        results = list(session.solve_many(PROBLEMS[:2], n=8, deadline_s=0.01))
        assert [(r.answer, r.correct, r.completions) for r in results] == [(None, False, ())] * 2
        with pytest.raises(DeadlineExceeded):
            session.solve(PROBLEMS[0], n=8, deadline_s=0.01)


def test_searches_that_are_stopped_answer_with_what_they_have(tiny_deployment, words):
    async def chains(session):
        options = {"strategy": "majority-vote", "n": 8}
        searches = [
            asyncio.ensure_future(session.solve(problem, **options)) for problem in PROBLEMS[:2]
        ]
        await asyncio.sleep(5.0)
        session.stop_searches()
        for search in searches:
            yield await search

    generator = HangingFrom(ScriptedGenerator(*words), 6)
    results = on_virtual_time(tiny_deployment, generator, ScriptedVerifier(), chains)
    assert [result.limit for result in results] == ["deadline"] * 2
    assert sum(len(result.completions) for result in results) == 6


class Silent:
    """A verifier that never answers."""

    async def score(self, call):
        await asyncio.Event().wait()


def test_a_deadline_before_any_score_leaves_a_majority(tiny_deployment, words):
    async def chains(session):
        options = {"strategy": "best-of-n", "n": 8, "max_tokens": 16}
        yield await session.solve(PROBLEMS[0], deadline_s=5.0, **options)

    (result,) = on_virtual_time(tiny_deployment, ScriptedGenerator(*words), Silent(), chains)
    assert result.limit == "deadline"
    assert result.answer == result.answers["majority"]
    assert {done.score for done in result.completions} == {None}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", True])
def test_a_budget_that_is_no_number_of_tokens_is_refused(session, wrong):
    with pytest.raises(ConfigError, match="budget_tokens"):
        session.solve(PROBLEMS[0], n=4, budget_tokens=wrong)
