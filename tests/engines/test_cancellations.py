"""When it is asked whether requests were cancelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines.cancellations import POLLING_SHARE, Cancellations


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def question(self, asked, name, *, takes=0.0, answer=False):
        def ask():
            self.now += takes
            asked.append((name, self.now))
            return answer

        return ask


def test_a_request_is_not_asked_for_before_its_period_is_over():
    clock, asked = Clock(), []
    polls = Cancellations(5.0, clock)
    assert polls.due_s() is None
    polls.add(1, clock.question(asked, 1))
    assert polls.due_s() == 5.0
    assert polls.ask() is None
    assert not asked
    clock.now = 5.0
    assert polls.due_s() == 0.0
    assert polls.ask() is None
    assert asked == [(1, 5.0)]
    assert polls.due_s() == 5.0


def test_a_cancelled_request_is_named_once_and_asked_for_no_more():
    clock, asked = Clock(), []
    polls = Cancellations(0.0, clock)
    polls.add(7, clock.question(asked, 7, answer=True))
    assert polls.ask() == 7
    assert polls.ask() is polls.due_s() is None
    assert len(asked) == 1


def test_a_request_that_was_answered_is_asked_for_no_more():
    clock, asked = Clock(), []
    polls = Cancellations(0.0, clock)
    polls.add(1, clock.question(asked, 1))
    polls.discard(1)
    polls.discard(1)
    assert polls.ask() is None
    assert not asked


def test_slow_questions_take_a_small_share_of_the_time():
    clock, asked = Clock(), []
    polls = Cancellations(0.0, clock)
    polls.add(1, clock.question(asked, 1, takes=1.0))
    polls.ask()
    assert polls.due_s() == pytest.approx(1 / POLLING_SHARE)
    assert polls.ask() is None
    assert len(asked) == 1


@given(st.integers(1, 20), st.floats(0.01, 10), st.floats(0, 0.1))
def test_every_request_has_its_turn_before_one_is_asked_for_again(count, period, takes):
    clock, asked = Clock(), []
    polls = Cancellations(period, clock)
    for name in range(count):
        polls.add(name, clock.question(asked, name, takes=takes))
    while len(asked) < 3 * count:
        clock.now += polls.due_s()
        assert polls.ask() is None
    assert [name for name, _ in asked] == 3 * list(range(count))
    for (_, at), (_, again) in zip(asked, asked[count:], strict=False):
        assert again - at >= period - 1e-6


def test_a_question_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture):
    now = 0.0
    cancellations = Cancellations(1.0, lambda: now)
    answers = iter([RuntimeError("the client is gone"), True])

    def is_cancelled() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cancellations.add(7, is_cancelled)
    now = 1.0
    assert cancellations.ask() is None
    assert "a question to Triton or to the engine failed" in caplog.text
    now = 2.0
    assert cancellations.ask() == 7
