"""Many problems: results as they come, in a folder with log, report and resume."""

import asyncio
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.endpoints import Failing, HangingFrom

from tts.base.errors import EndpointTimeout, RunError
from tts.lab.bench.single_run import resume_bench
from tts.lab.observer import Observer
from tts.problem import Problem
from tts.reports.terminal import print_report
from tts.runs.compare import compare
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.events import ProblemSolved, StepGenerated, StepScored
from tts.runs.folder import locked, read_problems
from tts.runs.log import RunLog, read_events
from tts.runs.summary import read_summary
from tts.search import SampleSearch, SampleSearchConfig
from tts.session import Run, Session

PROBLEMS = [("Compute 2 + 2.", "4"), "Compute 1 + 3.", Problem("third", "Compute 7 - 3.", "4", 2)]


def test_every_problem_is_yielded_once_named_by_its_place(session):
    results = {result.problem.id: result for result in session.solve_many(PROBLEMS, n=4)}
    assert set(results) == {"1", "2", "third"}
    assert results["2"].correct is None
    assert results["third"].problem == PROBLEMS[2]


def test_with_or_without_a_folder_the_trees_are_the_same(session, tmp_path):
    kept = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, seed=3, out=tmp_path / "r")}
    free = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, seed=3, in_flight=1)}
    one = session.solve(PROBLEMS[2], n=4, seed=3)
    assert {i: r.tree_digest for i, r in kept.items()} == {
        i: r.tree_digest for i, r in free.items()
    }
    assert one.tree_digest == free["third"].tree_digest


def test_every_time_in_the_log_is_one_of_the_logs_own_clock(session, tmp_path, monkeypatch):
    ticks = count()
    monkeypatch.setattr(RunLog, "clock", lambda log: next(ticks) / 1024)
    list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    times = [event.t for event in read_events(tmp_path / "run")]
    assert all((1024 * time).is_integer() for time in times)
    assert max(times) < next(ticks) / 1024


def test_a_folder_is_a_run_with_its_log_its_problems_and_its_summary(session, tmp_path):
    results = {r.problem.id: r for r in session.solve_many(PROBLEMS, n=4, out=tmp_path / "run")}
    folder = tmp_path / "run"
    run = Run.load(folder)
    questions = [problem.question for problem in read_problems(folder)]
    assert questions == ["Compute 2 + 2.", "Compute 1 + 3.", "Compute 7 - 3."]
    assert read_summary(folder).problems == 3
    assert {p.id: (p.answer, p.correct, p.tree_digest) for p in run.problems} == {
        i: (r.answer, r.correct, r.tree_digest) for i, r in results.items()
    }
    assert {p.id: p.completions for p in run.problems} == {
        i: r.completions for i, r in results.items()
    }


def test_usage_is_what_the_log_says(session, tmp_path):
    results = list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    for result in results:
        mine = [
            event
            for event in read_events(tmp_path / "run")
            if getattr(event, "problem", None) == result.problem.id
        ]
        written = [event for event in mine if isinstance(event, StepGenerated)]
        scored = [event for event in mine if isinstance(event, StepScored)]
        usage = result.usage
        assert usage.generator_calls == len(written)
        assert usage.generated_tokens == sum(event.tokens for event in written)
        assert usage.cached_scores == sum(event.cached for event in scored)
        assert usage.verifier_calls == sum(not event.cached for event in scored)


@settings(max_examples=15, deadline=None)
@given(answered=st.integers(0, 60))
def test_a_run_that_is_left_goes_on_to_the_same_results_with_nothing_asked_twice(
    tiny_deployment, words, tmp_path_factory, answered
):
    folder = tmp_path_factory.mktemp("run")
    engines = Failing(ScriptedGenerator(*words), 10**9, EndpointTimeout("gone"))

    def solved(name, **options):
        own = {"generator": engines, "verifier": ScriptedVerifier()}
        with Session.open(tiny_deployment, **own) as session:
            results = session.solve_many(PROBLEMS, n=4, out=folder / name, **options)
            return {result.problem.id: result for result in results}

    expected = solved("whole")
    engines.left = answered
    try:
        solved("left")
    except EndpointTimeout:
        engines.left = 10**9  # it is there again
        after = solved("left", resume=True)
    else:
        return
    for name, result in expected.items():
        assert after[name].tree_digest == result.tree_digest
        assert after[name].answers == result.answers
        assert after[name].completions == result.completions
        assert after[name].usage.generated_tokens >= result.usage.completion_tokens
    steps = (e for e in read_events(folder / "left") if isinstance(e, StepGenerated))
    asked = [(step.problem, step.node) for step in steps]
    assert len(asked) == len(set(asked))


def test_results_that_are_in_the_log_come_first(session, tmp_path):
    first = next(iter(session.solve_many(PROBLEMS, n=4, in_flight=1, out=tmp_path / "run")))
    solved = [e.problem for e in read_events(tmp_path / "run") if isinstance(e, ProblemSolved)]
    again = list(session.solve_many(PROBLEMS, n=4, in_flight=1, out=tmp_path / "run", resume=True))
    assert [r.problem.id for r in again[: len(solved)]] == solved
    assert again[0].tree is None
    assert (again[0].answers, again[0].completions) == (first.answers, first.completions)
    assert again[0].usage == first.usage
    assert {r.problem.id for r in again} == {"1", "2", "third"}


def test_leaving_the_loop_cancels_what_runs_and_waits_for_it(opened, words):
    generator = HangingFrom(ScriptedGenerator(*words), 40)
    with opened(generator=generator) as session:
        for _ in session.solve_many(PROBLEMS, n=4, in_flight=1, seed=1):
            break
        assert generator.hanging.in_flight == 0


def test_an_async_loop_that_is_left_ends_what_runs_before_the_session_ends(opened_async, words):
    generator = HangingFrom(ScriptedGenerator(*words), 40)

    async def run():
        async with opened_async(generator=generator) as session:
            async for result in session.solve_many(PROBLEMS, n=4, in_flight=1, seed=1):
                assert result.problem.id == "1"
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert generator.hanging.in_flight == 0


def test_the_first_problem_that_fails_ends_the_run_and_the_others(opened, words, tmp_path):
    failing = Failing(ScriptedGenerator(*words), 20, EndpointTimeout("no answer"))
    with opened(generator=failing) as session, pytest.raises(EndpointTimeout, match="no answer"):
        list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_log_that_cannot_be_written_ends_the_run(session, tmp_path, monkeypatch):
    write, wrote = RunLog.write, []

    def full(log, event):
        wrote.append(event)
        if len(wrote) > 20:
            raise RunError("The run folder cannot be written: No space left on device.")
        write(log, event)

    monkeypatch.setattr(RunLog, "write", full)
    with pytest.raises(RunError, match="No space left"):
        list(session.solve_many(PROBLEMS, n=4, out=tmp_path / "run"))


def test_a_run_is_continued_only_as_it_was_begun(session, opened, tmp_path):
    folder = tmp_path / "run"
    list(session.solve_many(PROBLEMS, n=4, out=folder))
    with pytest.raises(RunError) as begun:
        list(session.solve_many(PROBLEMS, n=4, out=folder))
    assert "resume=True" in begun.value.hint
    assert "--" not in begun.value.hint
    with pytest.raises(RunError, match="its seed was 0 and is now 1"):
        list(session.solve_many(PROBLEMS, n=4, seed=1, out=folder, resume=True))
    with pytest.raises(RunError, match="its problem_ids was"):
        list(session.solve_many(PROBLEMS[:2], n=4, out=folder, resume=True))
    own = {"verifier": lambda question, steps: 0.5}
    with opened(**own) as other, pytest.raises(RunError, match="its functions was"):
        list(other.solve_many(PROBLEMS, n=4, out=folder, resume=True))


def test_the_command_refuses_to_continue_a_run_with_functions_of_a_program(session, tmp_path):
    folder = tmp_path / "run"
    list(session.solve_many(PROBLEMS, n=4, out=folder, answer_of=lambda text: text[:1]))
    with pytest.raises(RunError, match="answer_of") as caught:
        resume_bench(folder, None, Observer())
    assert "solve_many" in str(caught.value)


def test_solving_in_a_folder_is_a_run_of_one_problem(session, tmp_path):
    free = session.solve(PROBLEMS[0], n=4, seed=2)
    kept = session.solve(PROBLEMS[0], n=4, seed=2, out=tmp_path / "run")
    assert kept.tree_digest == free.tree_digest
    assert read_summary(tmp_path / "run").problems == 1


def test_a_run_of_a_functions_searches_is_reported(session, tmp_path, capsys):
    config = SampleSearchConfig(n=3, scored=False, max_tokens=64)

    def chains(problem, seed):
        return SampleSearch(config, seed)

    folder = tmp_path / "run"
    results = list(session.solve_many(PROBLEMS, strategy=chains, out=folder))
    summary = read_summary(folder)
    assert summary.accuracy == sum(r.correct is True for r in results) / 2
    print_report(compare([folder]))
    said = capsys.readouterr().out
    assert "chains" in said
    assert "KV pool" not in said
    steps = StepLog(folder, "generator", StepSession(session="", sampled=False))
    steps.write([EngineStep(t=float(missed), prefixes_missed=missed) for missed in (0, 3)])
    steps.close()
    print_report(compare([folder]))
    assert "its KV pool had dropped a prefix of 3 prompts" in capsys.readouterr().out
    (record,) = [p for p in Run.load(folder).problems if p.id == "third"]
    (result,) = [r for r in results if r.problem.id == "third"]
    assert (record.answer, record.correct) == (result.answer, result.correct)


def test_a_folder_that_somebody_works_in_is_refused(session, tmp_path):
    folder = tmp_path / "run"
    with locked(folder), pytest.raises(RunError, match="in use by process"):
        session.solve(PROBLEMS[0], n=4, out=folder)
    list(session.solve_many(PROBLEMS, n=4, out=folder))
    with locked(folder), pytest.raises(RunError, match="in use by process"):
        list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))
    assert len(list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))) == 3


def test_a_damaged_run_is_continued_when_it_is_repaired(session, tmp_path):
    folder = tmp_path / "run"
    whole = {r.problem.id: r.tree_digest for r in session.solve_many(PROBLEMS, n=4, out=folder)}
    log = folder / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:10], b"damage\n", *lines[11:]]))
    with pytest.raises(RunError, match=r"line 11 is not JSON.*\n.*--repair"):
        list(session.solve_many(PROBLEMS, n=4, out=folder, resume=True))
    again = session.solve_many(PROBLEMS, n=4, out=folder, resume=True, repair=True)
    assert {r.problem.id: r.tree_digest for r in again} == whole
