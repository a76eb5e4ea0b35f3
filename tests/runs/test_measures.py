"""The measures of a log, against straightforward definitions."""

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.runs.logs import (
    SESSION,
    TIMES,
    cut,
    expansion,
    idle,
    scoring,
    solved,
    started,
    texts,
    used,
    whole_logs,
)

from tts.runs import measures
from tts.runs.config import RunConfig
from tts.runs.events import (
    LoggedAnswer,
    LoggedCompletion,
    LoggedThought,
    ProblemSolved,
    StepGenerated,
    StepScored,
    Used,
)
from tts.runs.measures import LoadOverTime, Measures, measured_problems, tree_measures
from tts.runs.requests import request_of
from tts.runs.state import solved_problems
from tts.runs.summary import summarise


def paths(event):
    return [
        [done.node[:depth] for depth in range(1, len(done.node) + 1)] for done in event.completions
    ]


def generated_of(log, problem):
    return [e for e in log if isinstance(e, StepGenerated) and e.problem == problem]


@given(whole_logs())
def test_useful_tokens_are_those_on_the_paths_of_completions(log):
    measures = Measures.of(log)
    useful = 0
    for event in log:
        if isinstance(event, ProblemSolved):
            needed = {node for path in paths(event) for node in path}
            useful += sum(e.tokens for e in generated_of(log, event.problem) if e.node in needed)
    assert measures.useful_tokens == useful <= measures.generated_tokens
    assert measures.generated_tokens == sum(e.tokens for e in log if isinstance(e, StepGenerated))


@given(whole_logs())
def test_goodput_is_the_mean_tokens_of_completions_over_their_mean_time(log):
    tokens, seconds = [], []
    for event in log:
        if isinstance(event, ProblemSolved):
            written = {e.node: e for e in generated_of(log, event.problem)}
            begun = next(e.t for e in log if getattr(e, "problem", None) == event.problem)
            scored = {
                e.node: e.t for e in log if isinstance(e, StepScored) and e.problem == event.problem
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
def test_a_tree_holds_what_was_written_and_not_sent_ahead_in_vain(log):
    for problem in solved_problems(log):
        solution = next(e for e in log if isinstance(e, ProblemSolved) and e.problem == problem.id)
        asked = {e.node for e in log if isinstance(e, Used) and e.problem == problem.id}
        kept = {node for path in paths(solution) for node in path} | asked
        nodes = [
            e.node
            for e in generated_of(log, problem.id)
            if e.kind != "speculative" or e.node in kept
        ]
        depths = Counter(map(len, nodes))
        assert tree_measures(problem).nodes_by_depth == tuple(
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


@given(st.integers(0, 100))
def test_of_many_requests_an_even_sample_is_kept_and_all_are_counted(count):
    requests = Measures.of([SESSION]).requests["generator"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "SAMPLED", 8)
        for tokens in range(count):
            requests.add(
                request_of(replace(expansion([0], 0, 1, tokens=tokens), prompt_tokens=0), 0)
            )
    assert (requests.count, requests.total_tokens) == (count, sum(range(count)))
    assert list(requests.scheduled_tokens) == list(range(0, count, requests.every))
    assert min(count, 4) <= len(requests.seconds) <= 8
    assert len(requests.seconds_per_token) == sum(t > 0 for t in requests.scheduled_tokens)


def chain(node, sent, done, *lengths, kind="main"):
    thoughts = tuple(LoggedThought((1,) * length, "x", "step") for length in lengths)
    return expansion(node, sent, done, kind, thoughts=thoughts)


def test_each_thought_of_a_request_is_a_node():
    log = [
        SESSION,
        started("a", 1.0),
        chain([0], 1.0, 3.0, 4, 5),
        scoring([0, 0], 3.0, 4.0),
        solved("a", 5.0, completions=(LoggedCompletion((0, 0), 0.5, -1),)),
    ]
    measures = Measures.of(log)
    assert (measures.useful_tokens, measures.widths) == (9, [{1: 1}, {1: 1}])
    assert measures.goodput == pytest.approx(9 / 3.0)  # written and scored 3 s after the start
    assert list(measures.first_steps_s) == [2.0]
    assert measures.problems["a"].seconds == 4.0


def test_a_text_that_closed_a_thinking_was_not_generated():
    written = replace(chain([0], 0.0, 2.0, 8, 3), tokens=7)
    log = [SESSION, started("a", 0.0), written]
    log += [solved("a", 3.0, completions=(LoggedCompletion((0, 0), None, -1),))]
    measures = Measures.of(log)
    assert measures.useful_tokens == measures.generated_tokens == 7


def test_what_a_search_asked_for_before_it_was_written_is_in_the_tree():
    log = [SESSION, started("a", 0.0), used([0], 1.0), chain([0], 0.0, 2.0, 3, kind="speculative")]
    log += [chain([1], 0.0, 2.0, 3, kind="speculative"), solved("a", 3.0)]
    assert Measures.of(log).widths == [{1: 1}]


def test_a_problem_of_two_sessions_has_tokens_but_no_times():
    log = [SESSION, started("a", 0.0), chain([0], 0.0, 2.0, 3), SESSION, started("a", 0.5)]
    log += [chain([0, 0], 0.5, 1.0, 4)]
    log += [solved("a", 1.5, completions=(LoggedCompletion((0, 0), 0.5, -1),))]
    measures = Measures.of(log)
    assert (list(measures.first_steps_s), measures.goodput) == ([], None)
    assert measures.useful_tokens == 7
    assert list(measures.latencies_s) == [1.0]  # of the session that solved it
    assert measures.wall_s == 3.5


@pytest.mark.parametrize(
    ("stop", "text", "limit", "unended"),
    [
        ("step", "so", None, 1),
        ("length", "so", None, 1),
        ("length", "so", "tokens", 0),
        ("step", " \n", None, 0),
        ("end", "so", None, 0),
        ("cut", "so", None, 0),
    ],
)
def test_a_chain_that_came_to_its_most_steps_or_tokens_has_not_ended(stop, text, limit, unended):
    done = (LoggedCompletion((0,), 0.5, -1),)
    log = [
        *(SESSION, started("a", 0.0)),
        expansion((0,), 0.0, 1.0, thoughts=texts(text, stop=stop)),
        solved("a", 2.0, completions=done, limit=limit),
    ]
    assert Measures.of(log).unended == unended


def test_the_parts_that_hold_a_right_completion_are_counted():
    groups = (LoggedAnswer("1", True), LoggedAnswer("2", False))
    done = tuple(LoggedCompletion((i, 0), 0.5, i % 2) for i in range(4))
    log = [SESSION, solved("a", 1.0, correct={}, completions=done, groups=groups)]
    for config, shares in (
        (RunConfig(strategy="best-of-n", parameters={"n": 4}), {1: 0.5, 2: 5 / 6, 4: 1.0}),
        (RunConfig(strategy="dvts", parameters={"n": 4, "beam_width": 2}), {2: 1.0, 4: 1.0}),
    ):
        measures = Measures.of([*log, solved("b", 1.0)], config)  # b has no reference
        assert measures.curve.pass_over_k() == pytest.approx(shares)


@given(whole_logs(), st.sampled_from((1, measures.IN_MEMORY)))
def test_solved_problems_are_the_same_from_a_file_in_any_order(log, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "IN_MEMORY", most)
        kept = Measures.of(log).problems
    expected = {problem.id: problem for problem in measured_problems(log, {})}
    assert list(kept.items()) == list(expected.items())
    assert [kept[name] for name in sorted(kept)] == [expected[name] for name in sorted(expected)]
    judged = {name: each for name, each in expected.items() if each.correct is not None}
    for rule in ("best", "majority"):
        assert kept.right(rule) == {name: each.right(rule) for name, each in judged.items()}
        assert len(kept.right(rule)) == len(judged)


@given(st.lists(st.tuples(TIMES, st.sampled_from(("budget", "dependency"))), min_size=1))
def test_idle_times_add_up_by_engine_and_reason(pieces):
    events, now = [SESSION], 0.0
    for seconds, why in pieces:
        since, now = now, now + seconds
        events.append(idle("verifier", since, now, why))
    found = Measures.of(events).idle_s
    assert found["generator"] == {}
    for why in {why for _, why in pieces}:
        assert found["verifier"][why] == pytest.approx(sum(s for s, w in pieces if w == why))
    assert sum(found["verifier"].values()) <= now + 1e-9


def test_no_events_give_empty_and_none():
    summary = summarise(RunConfig(parameters={"n": 4}, vote="best"), Measures()).to_json()
    assert (
        summary.items()
        >= {
            "mean_in_flight": {"generator": None, "verifier": None},
            "latency_s": {"median": None, "p95": None},
            "idle_s": {"generator": {}, "verifier": {}},
            "speculation": {"sent": 0, "answered": 0, "used": 0, "cancelled": {}, "hit_rate": None},
            "waste": {"unused_tokens": 0, "share": None},
        }.items()
    )


def long_run(problems):
    """So many problems of 200 requests each, a tenth of them cancelled; one event at a time."""
    yield SESSION
    for number in range(problems):
        name, now = f"p{number}", float(number)
        yield started(name, now)
        for node in range(100):
            sent = now + node / 200
            if node % 10:
                yield expansion([node], sent, sent + 0.2, "speculative", tokens=9, problem=name)
            else:
                yield cut([node], sent, sent + 0.1, problem=name)
            yield scoring([node], sent, sent + 0.3, problem=name)
        yield solved(name, now + 1.0)


def test_memory_grows_by_bytes_a_request():
    def peak(problems):
        tracemalloc.start()
        try:
            use = Measures.of(long_run(problems))
            assert use.speculation.sent == 100 * problems
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(20), peak(40)
    assert many - few < 20 * 200 * 100, "more than 100 bytes for each further request"


STRETCHES = 8
LOADS = st.lists(
    st.tuples(TIMES, TIMES, st.integers(1, 9)).map(lambda drawn: (*sorted(drawn[:2]), drawn[2])),
    max_size=20,
)


def load_of(intervals):
    load = LoadOverTime(STRETCHES)
    for sent, done, weight in intervals:
        load.add(sent, done, weight)
    return load


@given(LOADS)
def test_each_stretch_has_its_own_mean(intervals):
    load, wall = load_of(intervals), max((done for _, done, _ in intervals), default=0) or 1.0
    means = load.means(wall)
    assert STRETCHES / 2 <= len(means) <= STRETCHES or load.width_s == 1e-3
    assert load.total == pytest.approx(sum((done - sent) * w for sent, done, w in intervals))
    for place, mean in enumerate(means):
        begin, end = place * load.width_s, min((place + 1) * load.width_s, wall)
        inside = sum(
            weight * max(0.0, min(done, end) - max(sent, begin)) for sent, done, weight in intervals
        )
        assert mean == pytest.approx(inside / (end - begin), abs=1e-6)


def test_compute_is_that_of_each_prefix_once():
    """Worked out by hand: 24 tokens of a generator of 100 parameters, 38 of a verifier of 1,000."""
    log = [
        SESSION,
        started("a", 0.0),
        replace(chain([0], 0.0, 1.0, 3), prompt_tokens=10),
        replace(chain([1], 0.0, 1.0, 2), prompt_tokens=10),
        replace(chain([0, 0], 1.0, 2.0, 4, 5), prompt_tokens=13),
        replace(chain([1, 0], 1.0, 2.0, 7, kind="speculative"), prompt_tokens=12),
        scoring([0], 1.0, 1.5, load=18),
        scoring([1], 1.0, 1.5, load=16, reused=12),
        scoring([0, 0], 2.0, 2.5, load=25, reused=15, tokens=6),
        scoring([1, 1], 2.0, 2.5, load=25, cached=True),
        solved("a", 3.0, completions=(LoggedCompletion((0, 0, 0), 0.5, -1),)),
    ]
    sizes = {"generator": 100, "verifier": 1000}
    alone = RunConfig(model_parameters={"generator": 100})
    assert Measures.of(log, RunConfig(model_parameters=sizes)).compute == 2 * (100 * 24 + 1000 * 38)
    assert Measures.of(log, alone).compute is None, "the other one worked, too"
    unscored = [event for event in log if not isinstance(event, StepScored)]
    assert Measures.of(unscored, alone).compute == 2 * 100 * 24
