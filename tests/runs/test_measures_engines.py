"""What a run's events say about the use of its engines: sums and shares."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import (
    LOGS,
    SESSION,
    TIMES,
    cut,
    expansion,
    idle,
    scoring,
    solved,
    started,
)

from tts.runs.config import RunConfig
from tts.runs.events import Generated
from tts.runs.measures import Measures
from tts.runs.summary import summarise


@given(LOGS)
def test_without_speculation_and_cancellation_nothing_is_wasted(events):
    kept = [e for e in events if isinstance(e, Generated) and e.kind == "main"]
    use = Measures.of([SESSION, *kept])
    assert use.speculation.hit_rate is None
    assert (use.speculation.unused_tokens, use.waste) in {(0, 0.0), (0, None)}


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
    summary = summarise(RunConfig(parameters={"n": 4}, vote="best"), []).to_json()
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


def test_a_problem_takes_the_time_of_the_session_that_solved_it():
    first = [SESSION, started("a", 1.0), expansion([0], 1.0, 4.0, tokens=1)]
    second = [SESSION, started("a", 0.5), expansion([1], 0.5, 2.0, tokens=1), solved("a", 3.0)]
    use = Measures.of([*first, *second])
    assert use.wall_s == 7.0
    assert use.latencies_s == [2.5]


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

    few, many = peak(60), peak(120)
    assert many - few < 60 * 200 * 100, "more than 100 bytes for each further request"
