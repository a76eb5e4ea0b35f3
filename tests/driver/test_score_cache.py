"""Equal scores are asked for once, whoever leaves or joins meanwhile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.driver.score_cache import ScoreCache
from tts.scheduling import Job, Kind
from tts.search import Score

STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "leave", "answer"]), st.integers(0, 4), st.integers(0, 2)),
    max_size=40,
)


def job_of(node):
    return Job(0, Score(node), 1, Kind.MAIN)


@pytest.mark.parametrize("leader_first", [False, True])
@settings(max_examples=amount(75, 300), deadline=None)
@given(steps=STEPS)
def test_every_node_that_stays_gets_the_score_of_its_key_and_no_key_is_asked_twice(
    leader_first, steps
):
    cache = ScoreCache(leader_first=leader_first)
    waiting: dict[bytes, list[tuple[int, ...]]] = {}
    sent: dict[bytes, Job] = {}
    jobs: dict[bytes, Job] = {}
    names: dict[Job, bytes] = {}
    count = 0

    def go(admitted):
        for job in admitted:
            assert names[job] not in sent, "asked twice"
            sent[names[job]] = job

    for what, number, which in steps:
        key = bytes([number])
        if what == "ask":
            count += 1
            node = (number, count)
            if cache.get(key) is not None:
                assert cache.get(key) == number / 10
            elif cache.join(key, node):
                assert key in waiting
                waiting[key].append(node)
            else:
                assert key not in waiting
                jobs[key] = job_of(node)
                names[jobs[key]] = key
                waiting[key] = [node]
                go(cache.ask(key, node, jobs[key]))
        elif what == "leave" and waiting.get(key):
            node = waiting[key].pop(which % len(waiting[key]))
            job = cache.leave(key, node)
            assert (job is None) == bool(waiting[key])
            if job:
                del waiting[key]
                assert cache.withhold(job) == (key not in sent)
                sent.pop(key, None)
                go(cache.follow(job))
        elif what == "answer" and key in sent:
            assert cache.answer(key, number / 10) == waiting.pop(key)
            go(cache.follow(sent.pop(key)))
    # whatever is asked for and not sent waits for a leader that is under way
    assert len(sent) == len(waiting) or (leader_first and len(sent) == 1)


def test_the_first_of_a_problem_goes_alone_and_the_others_follow_its_answer():
    cache = ScoreCache(leader_first=True)
    first, second, third = (job_of((number,)) for number in range(3))
    assert cache.ask(b"0", (0,), first) == [first]
    assert cache.ask(b"1", (1,), second) == []
    assert cache.ask(b"2", (2,), third) == []
    assert cache.answer(b"0", 0.5) == [(0,)]
    assert cache.follow(first) == [second, third]
    assert cache.follow(second) == []


def test_a_score_is_locked_at_its_first_write():
    cache = ScoreCache(leader_first=False)
    assert cache.lock(b"0", 0.25) == 0.25
    assert cache.lock(b"0", 0.75) == 0.25
    assert cache.get(b"0") == 0.25
