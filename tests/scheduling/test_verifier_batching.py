"""Verifier work is held back for a batch, and never for too long."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import NOTHING, send

from tts.scheduling import Actions, Job, Kind, Policy, Scheduler
from tts.search import Score


def hold(tokens=10, wait=1.0):
    return Scheduler(Policy("decoupled", 4, 1000, group_tokens=tokens, group_wait_s=wait))


def ask(scheduler, child, tokens, now, *, group=(), completes=False, problem=0):
    job = Job(problem, Score((*group, child), group, completes), tokens, Kind.MAIN)
    scheduler.add(job, now)
    scheduler.asked(problem, job.work)
    return job


def test_verifier_work_is_held_until_there_is_enough_of_it():
    scheduler = hold()
    first = ask(scheduler, 0, 4, now=0.0)
    assert send(scheduler, 0.0) == []
    assert scheduler.pending == (0, 1)
    second = ask(scheduler, 1, 6, now=0.5)
    assert send(scheduler, 0.5) == [first, second]
    assert [scheduler.trigger(job) for job in (first, second)] == ["tokens", "tokens"]
    scheduler.ended(first)
    assert scheduler.trigger(first) is None


def test_verifier_work_is_held_until_its_siblings_are_there():
    scheduler = hold(tokens=100)
    first = ask(scheduler, 0, 4, now=0.0, group=(3,))
    other = ask(scheduler, 0, 4, now=0.0, group=(4,))
    assert send(scheduler, 0.0) == []
    scheduler.asked(0, Score((3, 1), (3,), completes=True))  # known already: never a job
    assert send(scheduler, 0.1) == [first]
    assert scheduler.trigger(first) == "group"
    assert scheduler.next(0.9, NOTHING) == Actions([], [], ask_again_at=1.0)
    assert scheduler.next(1.0, NOTHING) == Actions([], [other], ask_again_at=None)
    assert scheduler.trigger(other) == "deadline"


def test_siblings_of_another_problem_let_nothing_go():
    scheduler = hold(tokens=100)
    held = ask(scheduler, 0, 4, now=0.0, group=(3,))
    scheduler.asked(1, Score((3, 1), (3,), completes=True))
    assert send(scheduler, 0.0) == []
    assert scheduler.drop(held)
    assert scheduler.next(0.0, NOTHING).ask_again_at is None
    assert not scheduler.drop(held)


@settings(max_examples=amount(50, 200), deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 2), st.integers(1, 30), st.booleans(), st.floats(0, 1)
        ),
        max_size=30,
    ),
    tokens=st.integers(1, 60),
    wait=st.sampled_from([0.1, 1.0]),
)
def test_no_score_is_held_for_longer_than_the_deadline(jobs, tokens, wait):
    scheduler = Scheduler(Policy("decoupled", 4, 10**6, group_tokens=tokens, group_wait_s=wait))
    now, due, waiting = 0.0, None, {}
    for child, (problem, group, size, completes, later) in enumerate(jobs):
        while due is not None and due <= now + later:
            actions = scheduler.next(due, NOTHING)
            for job in actions.send:
                assert due - waiting.pop(job) <= wait + 1e-9
            due = actions.ask_again_at
        now += later
        job = ask(scheduler, child, size, now, group=(group,), completes=completes, problem=problem)
        waiting[job] = now
        actions = scheduler.next(now, NOTHING)
        for job in actions.send:
            del waiting[job]
        due = actions.ask_again_at
        assert sum(job.tokens for job in waiting) < tokens
    if waiting:
        last = max(waiting.values()) + wait
        assert set(send(scheduler, last)) == set(waiting)
