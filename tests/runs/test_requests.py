"""From events to requests, in the order of end or of sending; what became of those sent ahead."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import LOGS, SESSION, cut, expansion, solved, used

from tts.runs.events import Cancelled, Prefetched, SessionBegan, StepGenerated, StepScored, Used
from tts.runs.measures import Measures
from tts.runs.records import EngineRequest
from tts.runs.requests import InOrderOfSending, requests_of
from tts.runs.state import end_to_end


def in_order(requests, window):
    order = InOrderOfSending(window)
    return [*filter(None, map(order.add, requests)), *order.rest()]


@given(LOGS)
def test_every_request_is_there_once_in_the_order_of_the_log(events):
    sent = [e for e in events if isinstance(e, StepGenerated | StepScored | Prefetched | Cancelled)]
    found = list(requests_of([SESSION, *events]))
    assert [(r.problem, r.node, r.prompt_tokens) for r in found] == [
        (e.problem, e.node, e.prompt_tokens) for e in sent
    ]
    assert [r.tokens for r in found] == [
        None if isinstance(e, Cancelled) else getattr(e, "tokens", 0) for e in sent
    ]
    assert [r.cancelled for r in found] == [getattr(e, "why", None) for e in sent]


def test_a_score_from_the_cache_is_no_request():
    cached = StepScored(t=1.0, problem="a", node=(0,), score=0.5, cached=True)
    assert list(requests_of([SESSION, cached])) == []


def test_a_cancelled_prompt_was_sent_to_the_generator():
    (request,) = requests_of([SESSION, cut((), 0.0, 1.0, "eager", work="prefetch")])
    assert (request.engine, request.kind, request.load) == ("generator", "prefetch", 1)


@given(LOGS)
def test_sessions_have_no_gaps_and_do_not_overlap(events):
    ends, began = 0.0, 0.0
    for at, event in end_to_end(events):
        if isinstance(event, SessionBegan):
            began = ends
        assert at == began
        ends = max(ends, at + (0.0 if isinstance(event, SessionBegan) else event.t))


def test_sessions_lie_end_to_end():
    events = [SESSION, expansion([0], 1.0, 4.0), SESSION, expansion([1], 0.5, 2.0)]
    assert [request.sent for request in requests_of(events)] == [1.0, 4.5]


def sortable(request: EngineRequest):
    return request.sent, request.engine == "generator" and request.cancelled is None


@given(LOGS, st.integers(1, 50))
def test_a_window_as_long_as_the_log_gives_the_order_of_sending(events, window):
    requests = list(requests_of(events))
    whole = in_order(requests, 1 + len(requests))
    assert whole == sorted(requests, key=sortable)
    some = in_order(requests, window)
    assert sorted(map(id, some)) == sorted(map(id, requests)), "none is lost, none is doubled"


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 8))
def test_a_window_restores_the_order_of_what_was_outlasted_by_fewer(delays, window):
    """Request number i is sent at i and ends after `delay` others that are sent later."""
    ended = sorted(range(len(delays)), key=lambda i: (i + min(delays[i], window - 1), i))
    requests = list(requests_of(expansion([0], float(i), 1e3) for i in ended))
    assert [request.sent for request in in_order(requests, window)] == list(range(len(delays)))


def all_kept(events):
    """Counted with everything in memory: what Speculation does while it forgets solved problems."""
    ahead = [
        e
        for e in events
        if isinstance(e, StepGenerated | Cancelled)
        and e.kind == "speculative"
        and getattr(e, "work", "expand") == "expand"
    ]
    asked = {(e.problem, e.node) for e in events if isinstance(e, Used)}
    answered = [e for e in ahead if isinstance(e, StepGenerated)]
    return (
        len(ahead),
        len(answered),
        len({(e.problem, e.node) for e in ahead} & asked),
        Counter(e.why for e in ahead if isinstance(e, Cancelled)),
        sum(e.tokens for e in answered if (e.problem, e.node) not in asked),
    )


def counted(events):
    found = Measures.of(events).speculation
    return found.sent, found.answered, found.used, found.cancelled, found.unused_tokens


@given(LOGS, LOGS)
def test_forgetting_solved_problems_changes_no_number(first, second):
    """A cancelled request may end after its problem was solved; nothing is used any more then."""
    late = [event for event in second if isinstance(event, Cancelled)]
    events = [SESSION, *first, solved("a", 20.0), solved("b", 20.0), *late]
    assert counted(events) == all_kept(events)


def test_an_expansion_is_wasted_unless_its_search_asked_for_it():
    one = expansion([0], 0.0, 1.0, "speculative", tokens=7)
    other = expansion([1], 0.0, 1.0, "speculative", tokens=3)
    ahead = Measures.of([SESSION, one, other, used([0], 1.0)]).speculation
    assert (ahead.unused_tokens, ahead.hit_rate) == (3, 0.5)


def test_what_is_asked_for_in_flight_and_cancelled_after_the_end_is_used():
    events = [SESSION, used([0], 1.0), solved("a", 2.0), cut([0], 0.5, 2.5, why="ended")]
    assert counted(events) == (1, 0, 1, Counter(ended=1), 0)
