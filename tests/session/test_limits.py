"""Limits of a problem: a budget of tokens, which is exact, a deadline, and an engine's silence."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import HangingFrom

from tts.base.errors import DeadlineExceeded, EndpointTimeout, RunError
from tts.endpoints.base import VerifierResult
from tts.endpoints.retry import Heartbeat
from tts.lab.simulation.scenario import run_virtual
from tts.problem import Problem
from tts.reports.figures.run import figures_of, warnings_of
from tts.reports.figures.work import token_use
from tts.reports.terminal import limit_lines
from tts.runs.folder import read_config
from tts.runs.summary import read_summary
from tts.session import Run, Session

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(6)]
BUDGET = 60
LATE_S = 100.0


def digests(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


def tokens(result):
    return sum(len(node.thought.token_ids) for node in result.tree)


def test_a_budget_cuts_each_problem_off_alone_as_in_a_run(session):
    limited = list(session.solve_many(PROBLEMS, n=8, budget_tokens=BUDGET))
    assert {result.limit for result in limited} == {"tokens"}
    assert all(0 < tokens(result) <= BUDGET for result in limited)
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
    (line,) = limit_lines(replace(summary, strategy="auto"))
    assert "at most (in runs of 64 problems or more: on average); 6 of 6 problems were" in line
    assert summary.unanswered == sum(result.answer is None for result in results)
    again = session.solve_many(PROBLEMS, n=8, budget_tokens=BUDGET, out=tmp_path, resume=True)
    assert {result.problem.id: result.limit for result in again} == {
        result.problem.id: "tokens" for result in results
    }


def test_a_run_without_answers_is_warned_of_and_what_was_thrown_away_is_waste(session, tmp_path):
    list(session.solve_many(PROBLEMS, n=8, budget_tokens=5, out=tmp_path))
    summary = read_summary(tmp_path)
    assert summary.unanswered == 6
    (warning,) = warnings_of(summary)
    assert "cut off 6 of 6 searches, 6 of them without any answer" in warning
    assert summary.waste.lost_tokens > 0
    (figure,) = figures_of(Run.load(tmp_path), [token_use])
    assert "beyond the budget" in figure.reading
    assert figure.rows[-1]["count"] == summary.waste.lost_tokens
    assert summary.generated_tokens < 6 * 5 * 5, "and not that of eight beams"


@pytest.mark.parametrize(
    ("written", "no_verdict", "warnings"), [(7, 0, 0), (7, 1, 1), (0, 0, 0), (0, 1, 1)]
)
def test_verifiers_that_say_nothing_are_warned_of(
    tiny_deployment, tmp_path, written, no_verdict, warnings
):
    class Writes:
        async def score(self, call):
            return VerifierResult(0.5, written, no_verdict)

    with Session.open(tiny_deployment, generator=lambda _: "So 4", verifier=Writes()) as session:
        session.solve(PROBLEMS[0], n=2, strategy="best-of-n", out=tmp_path)
    assert len(list(warnings_of(read_summary(tmp_path)))) == warnings


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
    assert not list(warnings_of(read_summary(tmp_path)))


def test_a_run_with_a_budget_is_continued_with_it_alone(session, tmp_path):
    list(session.solve_many(PROBLEMS, n=8, budget_tokens=BUDGET, out=tmp_path))
    with pytest.raises(RunError, match="limits"):
        list(session.solve_many(PROBLEMS, n=8, out=tmp_path, resume=True))


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


class Late:
    """A generator that takes its time, and for some problems for ever."""

    def __init__(self, inner, tokenizer, late):
        self.inner, self.tokenizer = inner, tokenizer
        self.late = late
        """Texts of prompts that are not answered."""
        self.heartbeat = Heartbeat("The server", LATE_S)

    async def generate(self, call):
        prompt = self.tokenizer.decode(call.input_ids.tolist())
        async with self.heartbeat.limited():
            await asyncio.sleep(1e6 if any(text in prompt for text in self.late) else 0.9 * LATE_S)
        self.heartbeat.beat()
        return await self.inner.generate(call)


def ended(deployment, generator, folder, **options):
    """The ids of the problems that a run has solved, in order, and the error at its end."""
    solved = []

    async def chains(session):
        options_of_all = {"strategy": "majority-vote", "n": 2, "out": folder}
        async for result in session.solve_many(PROBLEMS[:3], **options_of_all, **options):
            solved.append(result.problem.id)
            yield result

    try:
        on_virtual_time(deployment, generator, ScriptedVerifier(), chains)
    except EndpointTimeout as error:
        return sorted(solved), error
    return sorted(solved), None


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_late_answer_fails_its_problem_alone_and_resume_asks_again(
    tiny_deployment, words, tokenizer, tmp_path, in_flight
):
    generator = Late(ScriptedGenerator(*words), tokenizer, {"Compute 1 + 1."})
    solved, error = ended(tiny_deployment, generator, tmp_path, in_flight=in_flight)
    assert solved == ["0", "2"]
    assert error.message.startswith("1 problem has failed (1): ")
    assert "answer_timeout_s" in error.hint
    assert not (tmp_path / "summary.json").exists()
    generator.late.clear()
    asked = len(generator.inner.calls.generated)
    again = ended(tiny_deployment, generator, tmp_path, in_flight=in_flight, resume=True)
    assert again == (["0", "1", "2"], None)
    assert read_summary(tmp_path).problems == 3
    assert len(generator.inner.calls.generated) == asked + 2


def test_a_server_that_answers_nothing_ends_the_run(tiny_deployment, words, tokenizer, tmp_path):
    generator = Late(ScriptedGenerator(*words), tokenizer, {"Compute"})
    solved, error = ended(tiny_deployment, generator, tmp_path, in_flight=1)
    assert (solved, error.message) == ([], "The server has answered nothing for 100 s.")
