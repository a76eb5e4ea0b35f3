"""What a run's events say about the use of its engines: sums, shares and estimates."""

import tracemalloc
from bisect import bisect_left
from itertools import chain

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

from tts.runs.events import Generated, Scored
from tts.runs.requests import requests_of
from tts.runs.utilization import Utilization


@given(LOGS)
def test_every_request_is_counted_once(events):
    use = Utilization.of([SESSION, *events])
    assert use.run.work.generated_tokens == sum(
        e.tokens for e in events if isinstance(e, Generated)
    )
    fresh = [event for event in events if isinstance(event, Scored)]
    assert use.run.work.verifier_calls == len(fresh)
    assert use.run.work.verifier_tokens == sum(event.prompt_tokens for event in fresh)


@given(LOGS)
def test_without_speculation_and_cancellation_nothing_is_wasted(events):
    kept = [e for e in events if isinstance(e, Generated) and e.kind == "main"]
    use = Utilization.of([SESSION, *kept])
    assert use.speculation.hit_rate is None
    assert (use.speculation.unused_tokens, use.cancelled_tokens) == (0, 0)


@given(st.lists(st.tuples(TIMES, st.sampled_from(("budget", "dependency"))), min_size=1))
def test_idle_times_add_up_by_engine_and_reason(pieces):
    events, now = [SESSION], 0.0
    for seconds, why in pieces:
        since, now = now, now + seconds
        events.append(idle("verifier", since, now, why))
    found = Utilization.of(events).idle_s
    assert found["generator"] == {}
    for why in {why for _, why in pieces}:
        assert found["verifier"][why] == pytest.approx(sum(s for s, w in pieces if w == why))
    assert sum(found["verifier"].values()) <= now + 1e-9


def test_no_events_give_empty_and_none():
    assert Utilization.of([]).to_json() == {
        "latency_s": {"median": None, "p95": None},
        "idle_s": {"generator": {}, "verifier": {}},
        "speculation": {"sent": 0, "answered": 0, "used": 0, "cancelled": {}, "hit_rate": None},
        "waste": {"unused_tokens": 0, "cancelled_tokens_estimated": 0, "share": None},
    }


def test_a_problem_takes_the_time_of_the_session_that_solved_it():
    first = [SESSION, started("a", 1.0), expansion([0], 1.0, 4.0, tokens=1)]
    second = [SESSION, started("a", 0.5), expansion([1], 0.5, 2.0, tokens=1), solved("a", 3.0)]
    use = Utilization.of([*first, *second])
    assert use.run.wall_s == 7.0
    assert use.latencies_s == {"a": 2.5}


def test_a_cancelled_request_is_taken_to_be_as_fast_as_its_neighbours():
    answered = [expansion([n], n, n + 2.0, tokens=10) for n in range(4)]  # 5 tokens a second
    use = Utilization.of([SESSION, *answered, cut([9], 1.0, 4.0)])
    assert (use.run.work.generated_tokens, use.speculation.unused_tokens) == (40, 0)
    assert use.cancelled_tokens == pytest.approx(15)
    assert use.waste == pytest.approx(15 / 55)


def nearest_estimate(events):
    """The estimate of the 16 nearest answered requests, with all of them in memory."""
    generator = [r for r in requests_of(events) if r.engine == "generator"]
    answered = sorted((r for r in generator if r.tokens is not None), key=lambda r: r.sent)
    starts = [request.sent for request in answered]
    estimate = 0.0
    for request in generator:
        if request.cancelled is None or request.kind == "prefetch":
            continue
        place = bisect_left(starts, request.sent)
        near = answered[max(0, place - 8) : place + 8]
        busy = sum(other.seconds for other in near)
        estimate += request.seconds * sum(o.tokens for o in near) / busy if busy > 0 else 0.0
    return estimate


@given(st.lists(LOGS, max_size=4))
def test_the_estimate_is_that_of_the_nearest_requests_of_the_whole_log(logs):
    events = [SESSION, *chain.from_iterable(logs)]
    assert Utilization.of(events).cancelled_tokens == pytest.approx(nearest_estimate(events))


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


def test_memory_does_not_grow_with_the_requests():
    def peak(problems):
        tracemalloc.start()
        try:
            use = Utilization.of(long_run(problems))
            assert use.speculation.sent == 100 * problems
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(90), peak(150)  # the window is full after 82
    assert many - few < 60 * 1000, "more than a kilobyte for each further problem of 200 requests"
