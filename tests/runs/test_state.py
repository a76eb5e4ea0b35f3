"""The one fold of a log: problems are handed on whole when they are solved, and then forgotten."""

from hypothesis import given
from tests.runs.logs import SESSION, cut, expansion, scoring, solved, started, used, whole_logs

from tts.runs.events import VERSION, ProblemSolved, SessionBegan, StepGenerated, StepScored
from tts.runs.state import ProblemState, RunState, solved_problems


def of_problem(log, kind, name):
    return [event for event in log if isinstance(event, kind) and event.problem == name]


@given(whole_logs())
def test_a_solved_problem_has_all_that_the_log_said_of_it(log):
    run = RunState()
    found = list(solved_problems(log, run))
    assert [p.solution for p in found] == [e for e in log if isinstance(e, ProblemSolved)]
    assert not run.open
    assert set(run.solved) == {problem.id for problem in found}
    for problem in found:
        generated = of_problem(log, StepGenerated, problem.id)
        assert [event for _, event in problem.generated] == generated
        assert [event for _, event in problem.scored] == of_problem(log, StepScored, problem.id)
        assert problem.work.generated_tokens == sum(event.tokens for event in generated)
        assert problem.question == f"question of {problem.id}"
        assert problem.seconds == problem.solved_at - problem.started >= 0


@given(whole_logs())
def test_without_its_requests_a_problem_is_counted_alike(log):
    for kept in solved_problems(log):
        each = ProblemState(kept.id, keeps_events=False)
        for began, event in (*kept.generated, *kept.scored, *kept.uses, *kept.cancelled):
            each.apply(event, began)
        assert each.work == kept.work
        assert [each.generated, each.scored, each.uses, each.cancelled] == [[]] * 4


@given(whole_logs())
def test_the_work_of_a_run_is_that_of_its_problems(log):
    run = RunState()
    problems = list(solved_problems(log, run))
    for name in ("generator_calls", "generated_tokens", "verifier_calls", "verifier_tokens"):
        assert getattr(run.work, name) == sum(getattr(each.work, name) for each in problems), name


def test_sessions_are_laid_end_to_end_and_a_problem_of_two_has_been_resumed():
    limits = SessionBegan(t=0.0, time="", version=VERSION, limits=(4, 40))
    first = [limits, started("a", 1.0), expansion([0], 1.0, 3.0, tokens=2)]
    second = [SESSION, started("a", 1.0), scoring([0], 1.0, 2.0), solved("a", 4.0)]
    run = RunState()
    (problem,) = solved_problems(first + second, run)
    assert (run.sessions, run.began, run.wall_s, run.limits) == (2, 3.0, 7.0, (4, 40))
    assert (problem.first_started, problem.started, problem.solved_at) == (1.0, 4.0, 7.0)
    assert (problem.resumed, problem.seconds) == (True, 3.0)


def test_what_comes_after_a_solution_counts_for_the_run_and_opens_no_problem():
    run = RunState()
    late = [expansion([1], 0.0, 3.0, tokens=5), used([1], 3.0), cut([2], 0.0, 3.0)]
    (problem,) = solved_problems([SESSION, started("a", 0.0), solved("a", 2.0), *late], run)
    assert (problem.work.generated_tokens, run.work.generated_tokens) == (0, 5)
    assert not run.open


def test_a_second_solution_of_a_problem_is_told():
    log = [SESSION, started("a", 0.0), solved("a", 1.0), solved("a", 2.0)]
    assert [problem.repeated for problem in solved_problems(log)] == [False, True]
