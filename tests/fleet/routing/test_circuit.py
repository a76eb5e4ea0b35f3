"""The circuit breaker: closed, open, half-open, at the times that it is given."""

from hypothesis import given
from hypothesis import strategies as st

from tts.fleet.routing import LONGEST_WAIT_S, Circuit


def failed(circuit, now, times=1):
    for _ in range(times):
        circuit = circuit.failed(now)
    return circuit


def test_it_opens_at_so_many_failures_in_a_row():
    circuit = failed(Circuit(), 10.0, 2)
    assert circuit.state(10.0) == "closed"
    assert circuit.failed(10.0).state(10.0) == "open"


def test_it_is_tried_again_after_its_wait():
    circuit = failed(Circuit(), 10.0, 3)
    assert circuit.state(10.99) == "open"
    assert circuit.state(11.0) == "half-open"


def test_each_trial_that_fails_doubles_the_wait_up_to_the_longest():
    circuit, now, waits = failed(Circuit(), 0.0, 3), 0.0, []
    for _ in range(7):
        waits.append(circuit.retry_at - now)
        now = circuit.retry_at
        circuit = circuit.failed(now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_failures_of_work_from_before_it_opened_do_not_prolong_the_wait():
    circuit = failed(Circuit(), 0.0, 3)
    assert circuit.failed(0.5) == circuit


def test_what_is_known_to_be_dead_is_open_at_once():
    circuit = Circuit().tripped(5.0)
    assert (circuit.state(5.0), circuit.state(6.0)) == ("open", "half-open")
    assert circuit.tripped(5.5) == circuit


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["ok", "failed", "tripped"]))))
def test_a_success_closes_it_and_no_wait_exceeds_the_longest(events):
    circuit, now = Circuit(), 0.0
    for later, what in events:
        now += later
        if what == "ok":
            circuit = Circuit()
        else:
            circuit = circuit.failed(now) if what == "failed" else circuit.tripped(now)
            assert circuit.retry_at is None or circuit.retry_at <= now + LONGEST_WAIT_S
        assert circuit.state(now + LONGEST_WAIT_S) != "open"
