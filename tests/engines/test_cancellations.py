"""When it is asked whether requests were cancelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines.engine_thread import POLLING_SHARE, Cancellations


class Polls(Cancellations):
    """On a clock that moves when it is told to; what was asked, and when."""

    def __init__(self, period_s=0.0):
        super().__init__(period_s, lambda: self.now)
        self.now, self.asked = 0.0, []

    def put(self, name, *answers, takes=0.0):
        """A question with these answers, of which the last stays, each of which takes a while."""
        left = list(answers) or [False]

        def ask():
            self.now += takes
            self.asked.append((name, self.now))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.add(name, ask)


def test_a_request_is_not_asked_for_before_its_period_is_over():
    polls = Polls(5.0)
    assert polls.due_s() is None
    polls.put(1)
    assert polls.due_s() == 5.0
    assert polls.ask() is None
    assert not polls.asked
    polls.now = 5.0
    assert polls.due_s() == 0.0
    assert polls.ask() is None
    assert polls.asked == [(1, 5.0)]
    assert polls.due_s() == 5.0


def test_a_cancelled_request_is_named_once_and_asked_for_no_more():
    polls = Polls()
    polls.put(7, True)
    assert polls.ask() == 7
    assert polls.ask() is polls.due_s() is None
    assert len(polls.asked) == 1


def test_a_request_that_was_answered_is_asked_for_no_more():
    polls = Polls()
    polls.put(1)
    polls.discard(1)
    polls.discard(1)
    assert polls.ask() is None
    assert not polls.asked


def test_slow_questions_take_a_small_share_of_the_time():
    polls = Polls()
    polls.put(1, takes=1.0)
    polls.ask()
    assert polls.due_s() == pytest.approx(1 / POLLING_SHARE)
    assert polls.ask() is None
    assert len(polls.asked) == 1


@given(st.integers(1, 20), st.floats(0.01, 10), st.floats(0, 0.1))
def test_every_request_has_its_turn_before_one_is_asked_for_again(count, period, takes):
    polls = Polls(period)
    for name in range(count):
        polls.put(name, takes=takes)
    while len(polls.asked) < 3 * count:
        polls.now += polls.due_s()
        assert polls.ask() is None
    assert [name for name, _ in polls.asked] == 3 * list(range(count))
    for (_, at), (_, again) in zip(polls.asked, polls.asked[count:], strict=False):
        assert again - at >= period - 1e-6


def test_a_question_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture):
    polls = Polls(1.0)
    polls.put(7, RuntimeError("the client is gone"), True)
    polls.now = 1.0
    assert polls.ask() is None
    assert "a question to Triton or to the engine failed" in caplog.text
    polls.now = 2.0
    assert polls.ask() == 7
