"""The measures of a log, against straightforward definitions."""

from collections import Counter

import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.runs.logs import SESSION, expansion, scoring, solved, started, used, whole_logs

from tts.runs.events import (
    Generated,
    LoggedAnswer,
    LoggedCompletion,
    LoggedThought,
    ProblemSolved,
    Scored,
    Used,
)
from tts.runs.measures import Measures


def paths(event):
    return [
        [done.node[:depth] for depth in range(1, len(done.node) + 1)] for done in event.completions
    ]


def generated_of(log, problem):
    return [e for e in log if isinstance(e, Generated) and e.problem == problem]


@given(whole_logs())
def test_useful_tokens_are_those_on_the_paths_of_completions(log):
    measures = Measures.of(log)
    useful = 0
    for event in log:
        if isinstance(event, ProblemSolved):
            needed = {node for path in paths(event) for node in path}
            useful += sum(e.tokens for e in generated_of(log, event.problem) if e.node in needed)
    assert measures.useful_tokens == useful <= measures.generated_tokens
    assert measures.generated_tokens == sum(e.tokens for e in log if isinstance(e, Generated))


@given(whole_logs())
def test_goodput_is_the_mean_tokens_of_completions_over_their_mean_time(log):
    tokens, seconds = [], []
    for event in log:
        if isinstance(event, ProblemSolved):
            written = {e.node: e for e in generated_of(log, event.problem)}
            begun = next(e.t for e in log if getattr(e, "problem", None) == event.problem)
            scored = {
                e.node: e.t for e in log if isinstance(e, Scored) and e.problem == event.problem
            }
            for path in paths(event):
                tokens.append(sum(written[node].tokens for node in path))
                seconds.append(max(written[path[-1]].done, scored.get(path[-1], 0.0)) - begun)
    goodput = Measures.of(log).goodput
    if not seconds:
        assert goodput is None
    else:
        mean_tokens, mean_seconds = sum(tokens) / len(tokens), sum(seconds) / len(seconds)
        assert goodput == pytest.approx(mean_tokens / mean_seconds)


@given(whole_logs())
def test_a_completion_is_never_faster_than_all_that_was_written(log):
    """Of one problem alone, a completion's tokens per second are at most the run's."""
    measures = Measures.of([e for e in log if getattr(e, "problem", "a") == "a"])
    for problem in measures.problems.values():
        tree = problem.tree
        assert tree.completion_tokens <= tree.completions * problem.tokens
        assert tree.useful_tokens <= min(tree.completion_tokens, problem.tokens)


@given(whole_logs())
def test_a_tree_holds_what_was_written_and_not_sent_ahead_in_vain(log):
    for problem in Measures.of(log).problems.values():
        solution = next(e for e in log if isinstance(e, ProblemSolved) and e.problem == problem.id)
        asked = {e.node for e in log if isinstance(e, Used) and e.problem == problem.id}
        kept = {node for path in paths(solution) for node in path} | asked
        nodes = [
            e.node
            for e in generated_of(log, problem.id)
            if e.kind != "speculative" or e.node in kept
        ]
        depths = Counter(map(len, nodes))
        assert problem.tree.nodes_by_depth == tuple(
            depths[depth] for depth in range(1, max(depths, default=0) + 1)
        )


@given(whole_logs(), whole_logs())
def test_two_logs_end_to_end_add_up(one, other):
    """As the sessions of one run, whose second one solves other problems."""
    renamed = [e if e is SESSION else replace(e, problem=f"{e.problem}2") for e in other]
    halves, whole = (Measures.of(one), Measures.of(other)), Measures.of(one + renamed)
    for name in ("useful_tokens", "generated_tokens"):
        assert getattr(whole, name) == sum(getattr(half, name) for half in halves), name
    for name in ("verifier_calls", "cached_scores"):
        counts = [getattr(each.run.work, name) for each in halves]
        assert getattr(whole.run.work, name) == sum(counts), name
    assert whole.run.sessions == sum(half.run.sessions for half in halves)
    assert whole.wall_s == pytest.approx(sum(half.wall_s for half in halves))
    for engine in ("generator", "verifier"):
        ours = whole.requests[engine]
        theirs = [half.requests[engine] for half in halves]
        assert ours.kinds == theirs[0].kinds + theirs[1].kinds
        assert ours.scheduled_tokens == theirs[0].scheduled_tokens + theirs[1].scheduled_tokens
        assert whole.in_flight[engine].total == pytest.approx(
            sum(half.in_flight[engine].total for half in halves)
        )


def thoughts(*lengths):
    return tuple(LoggedThought((1,) * length, "x", "step") for length in lengths)


def chain(node, sent, done, *lengths, kind="main"):
    event = expansion(node, sent, done, kind, tokens=sum(lengths))
    return replace(event, thoughts=thoughts(*lengths))


def test_each_thought_of_a_request_is_a_node():
    log = [
        SESSION,
        started("a", 1.0),
        chain([0], 1.0, 3.0, 4, 5),
        scoring([0, 0], 3.0, 4.0),
        solved("a", 5.0, completions=(LoggedCompletion((0, 0), 0.5),)),
    ]
    measures = Measures.of(log)
    tree = measures.problems["a"].tree
    assert (tree.useful_tokens, tree.nodes_by_depth) == (9, (1, 1))
    assert measures.goodput == pytest.approx(9 / 3.0)  # written and scored 3 s after the start
    assert tree.first_step_s == 2.0
    assert measures.problems["a"].seconds == 4.0


def test_what_a_search_asked_for_before_it_was_written_is_in_the_tree():
    log = [SESSION, started("a", 0.0), used([0], 1.0), chain([0], 0.0, 2.0, 3, kind="speculative")]
    log += [chain([1], 0.0, 2.0, 3, kind="speculative"), solved("a", 3.0)]
    assert Measures.of(log).problems["a"].tree.nodes_by_depth == (1,)


def test_a_problem_of_two_sessions_has_tokens_but_no_times():
    log = [SESSION, started("a", 0.0), chain([0], 0.0, 2.0, 3), SESSION, started("a", 0.5)]
    log += [chain([0, 0], 0.5, 1.0, 4)]
    log += [solved("a", 1.5, completions=(LoggedCompletion((0, 0), 0.5),))]
    measures = Measures.of(log)
    tree = measures.problems["a"].tree
    assert (tree.completion_s, tree.first_step_s, measures.goodput) == (None, None, None)
    assert measures.useful_tokens == 7
    assert measures.problems["a"].seconds == 1.0  # of the session that solved it


def test_the_parts_that_hold_a_right_completion_are_counted():
    groups = (LoggedAnswer("1", True), LoggedAnswer("2", False))
    done = tuple(LoggedCompletion((i, 0), 0.5, i % 2) for i in range(4))
    log = [SESSION, solved("a", 1.0, correct={}, completions=done, groups=groups)]
    measures = Measures.of([*log, solved("b", 1.0)])  # b has no reference
    assert measures.right_units(4, 1) == {(4, 2): 1}
    assert measures.right_units(4, 2) == {(2, 2): 1}
