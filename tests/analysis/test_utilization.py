"""What a run's events say about the use of its engines: sums, shares and bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.analysis.utilization import (
    ENGINES,
    Trace,
    brief,
    idle_s,
    occupancy,
    quantile,
    sparkline,
    speculation,
    triggers,
    waste,
)

SESSION = {"event": "session", "t": 0.0}
TIMES = st.integers(0, 10_000).map(lambda ms: ms / 1000)
NODES = st.lists(st.integers(0, 2), min_size=1, max_size=2)
PROBLEMS = st.sampled_from("ab")


@st.composite
def requests(draw):
    sent, done = sorted((draw(TIMES), draw(TIMES)))
    event = {
        "event": draw(st.sampled_from(("generated", "scored", "cancelled", "prefetched"))),
        "problem": draw(PROBLEMS),
        "sent": sent,
        "done": done,
        "t": done,
        "prompt_tokens": draw(st.integers(1, 300)),
    }
    if event["event"] == "prefetched":
        return event | {"engine": draw(st.sampled_from(ENGINES))}
    event |= {"node": draw(NODES), "kind": draw(st.sampled_from(("main", "speculative")))}
    if event["event"] == "generated":
        event["tokens"] = draw(st.integers(0, 200))
    elif event["event"] == "cancelled":
        event["work"] = draw(st.sampled_from(("expand", "score")))
        event["why"] = draw(st.sampled_from(("ended", "pruned", "slot")))
    else:
        event |= {"cached": False, "trigger": draw(st.sampled_from(("tokens", "group")))}
    return event


@st.composite
def used(draw):
    return {"event": "used", "problem": draw(PROBLEMS), "node": draw(NODES), "t": draw(TIMES)}


LOGS = st.lists(st.one_of(requests(), used(), st.just(SESSION)), max_size=40)


@given(LOGS, st.integers(1, 50))
def test_the_mean_occupancy_is_the_requests_durations_over_the_wall(events, slices):
    trace = Trace.of([SESSION, *events])
    for engine in ENGINES:
        members = trace.of_engine(engine)
        load = occupancy(members, trace.wall_s, slices)
        total = sum(request.seconds * request.load for request in members)
        if trace.wall_s == 0:
            assert load == []
            assert total == 0
        else:
            assert sum(load) / slices * trace.wall_s == pytest.approx(total, abs=1e-6)
            assert min(load) >= 0


@given(LOGS)
def test_every_request_is_counted_once(events):
    trace = Trace.of([SESSION, *events])
    sent = [e for e in events if "done" in e]
    assert len(trace.requests) == len(sent) == sum(len(trace.of_engine(e)) for e in ENGINES)
    assert waste(trace).generated == sum(event.get("tokens", 0) for event in sent)
    fresh = [event for event in sent if event["event"] == "scored"]
    counted = triggers(trace).values()
    assert sum(trigger.requests for trigger in counted) == len(fresh)
    assert sum(trigger.tokens for trigger in counted) == sum(e["prompt_tokens"] for e in fresh)
    assert all(1 <= trigger.batches <= trigger.requests for trigger in counted)


@given(LOGS)
def test_speculation_adds_up_and_shares_are_shares(events):
    trace = Trace.of([SESSION, *events])
    spoken, wasted = speculation(trace), waste(trace)
    assert spoken.sent == spoken.answered + sum(spoken.cancelled.values())
    assert spoken.hit_rate is None if not spoken.sent else 0 <= spoken.hit_rate <= 1
    assert 0 <= wasted.unused <= wasted.generated
    assert wasted.share is None or 0 <= wasted.share <= 1


@given(LOGS)
def test_without_speculation_and_cancellation_nothing_is_wasted(events):
    kept = [e | {"kind": "main"} for e in events if e["event"] == "generated"]
    trace = Trace.of([SESSION, *kept])
    assert speculation(trace).hit_rate is None
    assert (waste(trace).unused, waste(trace).cancelled) == (0, 0)


@given(st.lists(st.tuples(TIMES, st.sampled_from(("budget", "dependency"))), min_size=1))
def test_idle_times_add_up_by_engine_and_reason(pieces):
    events, now = [SESSION], 0.0
    for seconds, why in pieces:
        since, now = now, now + seconds
        events.append(
            {
                "event": "idle",
                "engine": "verifier",
                "since": since,
                "until": now,
                "why": why,
                "t": now,
            }
        )
    idle = idle_s(Trace.of(events))
    assert idle["generator"] == {}
    for why in {why for _, why in pieces}:
        assert idle["verifier"][why] == pytest.approx(sum(s for s, w in pieces if w == why))
    assert sum(idle["verifier"].values()) <= now + 1e-9


def test_no_events_give_empty_and_none():
    trace = Trace.of([])
    assert occupancy(trace.requests, trace.wall_s, 10) == []
    assert sparkline([]) == ""
    assert quantile([], 0.5) is None
    assert brief(trace) == {
        "latency_s": {"median": None, "p95": None},
        "idle_s": {"generator": {}, "verifier": {}},
        "speculation": {"sent": 0, "answered": 0, "used": 0, "cancelled": {}, "hit_rate": None},
        "waste": {"unused_tokens": 0, "cancelled_tokens_estimated": 0, "share": None},
        "verifier_batches": {},
    }


def expansion(node, sent, done, kind="main", **fields):
    return {
        "event": "generated",
        "problem": "a",
        "node": node,
        "kind": kind,
        "sent": sent,
        "done": done,
        "t": done,
        "prompt_tokens": 5,
        **fields,
    }


def test_a_cancelled_request_is_taken_to_be_as_fast_as_its_neighbours():
    answered = [expansion([n], n, n + 2.0, tokens=10) for n in range(4)]  # 5 tokens a second
    cut = expansion([9], 1.0, 4.0, "speculative", event="cancelled", work="expand", why="pruned")
    wasted = waste(Trace.of([SESSION, *answered, cut]))
    assert (wasted.generated, wasted.unused, wasted.cancelled) == (40, 0, pytest.approx(15))
    assert wasted.share == pytest.approx(15 / 55)


def test_an_expansion_is_wasted_unless_its_search_asked_for_it():
    one = expansion([0], 0.0, 1.0, "speculative", tokens=7)
    other = expansion([1], 0.0, 1.0, "speculative", tokens=3)
    asked = {"event": "used", "problem": "a", "node": [0], "t": 1.0}
    trace = Trace.of([SESSION, one, other, asked])
    assert (waste(trace).unused, speculation(trace).hit_rate) == (3, 0.5)


def test_sessions_lie_end_to_end():
    first = [SESSION, {"event": "problem_started", "problem": "a", "t": 1.0}]
    first.append(expansion([0], 1.0, 4.0, tokens=1))
    second = [SESSION, {"event": "problem_started", "problem": "a", "t": 0.5}]
    second.append(expansion([1], 0.5, 2.0, tokens=1))
    second.append({"event": "problem_solved", "problem": "a", "t": 3.0})
    trace = Trace.of([*first, *second])
    assert trace.wall_s == 7.0
    assert [request.sent for request in trace.requests] == [1.0, 4.5]
    assert trace.latencies == {"a": 2.5}  # of the session that solved it


def test_requests_sent_together_are_one_batch():
    def score(sent, trigger):
        return expansion([0], sent, 9.0, event="scored", cached=False, trigger=trigger)

    sends = [(1.0, "group"), (1.0004, "group"), (1.0008, "tokens"), (2.0, "group")]
    counted = triggers(Trace.of([SESSION, *(score(*each) for each in sends)]))
    assert (counted["group"].batches, counted["group"].requests) == (2, 3)
    assert (counted["tokens"].batches, counted["tokens"].tokens) == (1, 5)


@pytest.mark.parametrize(
    ("values", "top", "line"),
    [([0, 1, 2], None, " ▅█"), ([0, 0], None, "  "), ([0.1, 4], 8, "▁▅"), ([9], 8, "█")],
)
def test_sparkline(values, top, line):
    assert sparkline(values, top) == line


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_so_many_values_are_not_above_a_quantile(values, share):
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
