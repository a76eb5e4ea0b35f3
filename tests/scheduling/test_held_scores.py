"""Scores that may turn out not to be needed wait for a share of the verifier, and for a crowd."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import Supply, send

from tts.scheduling import Job, Policy, Scheduler, WorkKind
from tts.search import Score

STEP = 10
SHARE = 2 * STEP
CROWD = 4 * STEP


def scheduler_of(schedule="decoupled", *, budget=1000, **policy):
    return Scheduler(Policy(schedule, 4, budget, verifier_step_tokens=STEP, **policy))


def score(path, tokens=STEP, *, problem=0, may_be_pruned=True):
    return Job(
        problem, Score(path, may_be_pruned=may_be_pruned), tokens, WorkKind.MAIN, cost=tokens
    )


def add(scheduler, *jobs):
    for job in jobs:
        scheduler.add(job)


def nodes(jobs):
    return [job.work.node for job in jobs]


def test_each_problem_has_a_share_of_two_steps_taken_by_path():
    scheduler = scheduler_of()
    first = score((7,))
    add(scheduler, first, *(score((child,)) for child in (5, 3, 4)), score((1,), problem=1))
    assert nodes(send(scheduler)) == [(7,), (5,), (1,)]
    assert scheduler.pending == (0, 2)
    scheduler.end(first)
    assert nodes(send(scheduler)) == [(3,)]


@pytest.mark.parametrize(
    ("schedule", "may_be_pruned"),
    [("decoupled", False), ("lockstep", True), ("batched", True), ("alternating", True)],
)
def test_scores_that_are_needed_or_of_another_schedule_wait_for_the_budget_alone(
    schedule, may_be_pruned
):
    scheduler = scheduler_of(schedule)
    add(scheduler, *(score((child,), may_be_pruned=may_be_pruned) for child in (5, 3, 4)))
    assert nodes(send(scheduler)) == [(5,), (3,), (4,)]


def test_a_score_that_is_larger_than_the_share_goes_alone():
    scheduler = scheduler_of()
    large, small = score((0,), SHARE + 1), score((1,))
    add(scheduler, large, small)
    assert send(scheduler) == [large]
    scheduler.end(large)
    assert send(scheduler) == [small]


def test_a_score_that_is_dropped_before_it_was_sent_makes_room():
    scheduler = scheduler_of(budget=STEP)
    jobs = [score((child,)) for child in range(4)]
    add(scheduler, *jobs)
    assert send(scheduler) == jobs[:1]
    assert scheduler.drop(jobs[3]), "held back"
    assert scheduler.drop(jobs[1]), "it waits for the budget"
    assert not scheduler.drop(jobs[0]), "in flight"
    scheduler.end(jobs[0])
    assert send(scheduler) == jobs[2:3]
    scheduler.end(jobs[2])
    assert scheduler.pending == scheduler.in_flight == (0, 0)


def crowded(**policy):
    """A scheduler whose verifier is crowded by two problems, with what these have in flight."""
    scheduler = scheduler_of(**policy)
    add(scheduler, *(score((child,), problem=problem) for problem in (1, 2) for child in (0, 1, 2)))
    in_flight = send(scheduler)
    assert sum(job.tokens for job in in_flight) == CROWD
    return scheduler, in_flight


def test_where_the_verifier_is_crowded_only_scores_that_are_needed_go():
    scheduler, in_flight = crowded()
    jobs = [score((child,), problem=3) for child in range(3)]
    certain = score((7,), problem=3, may_be_pruned=False)
    add(scheduler, *jobs, certain)
    assert send(scheduler) == [certain]
    scheduler.require(jobs[1])
    assert send(scheduler) == jobs[1:2]
    for job in (in_flight[0], jobs[1], certain):
        scheduler.end(job)
    assert send(scheduler) == jobs[:1], "the problem with the least in flight is first"


def test_on_a_shared_device_nothing_is_crowded_out():
    scheduler = scheduler_of(one_device=True)
    jobs = [score((child,), problem=problem) for problem in range(4) for child in range(2)]
    add(scheduler, *jobs)
    assert send(scheduler) == jobs


def test_of_a_crowd_the_needed_score_goes_first_then_the_problem_of_the_highest_priority():
    scheduler, in_flight = crowded()
    needed, low, high = score((5,), problem=3), score((0,), problem=3), score((1,), problem=4)
    high.priority = 1
    scheduler.require(needed)  # before it is asked for
    add(scheduler, needed, low, high)
    assert send(scheduler) == [needed]
    for job in (needed, in_flight[0]):
        scheduler.end(job)
    assert send(scheduler) == [high]


def test_what_is_needed_waits_for_its_share_as_long_as_there_is_no_crowd():
    scheduler = scheduler_of()
    jobs = [score((child,)) for child in range(4)]
    add(scheduler, *jobs)
    scheduler.require(jobs[3])
    assert send(scheduler) == jobs[:2]
    add(scheduler, *(score((child,), problem=1) for child in range(2)))
    assert nodes(send(scheduler)) == [(3,), (0,), (1,)], "now there is"


def test_what_waits_for_room_keeps_problems_from_starting():
    """As if it were in the verifier's queue; what its own problem's share holds back does not."""
    scheduler, _ = crowded(budget=CROWD + STEP)
    supply = Supply(queued=["a", "b"])
    send(scheduler, supply)
    assert supply.queued == []
    for problem in (3, 4, 5):
        add(scheduler, score((0,), problem=problem), score((1,), problem=problem))
    supply = Supply(queued=["c"])
    send(scheduler, supply)
    assert supply.queued == ["c"]


@settings(max_examples=amount(150, 2000), deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(1, 30), st.booleans()),
        max_size=40,
    ),
    budget=st.sampled_from([15, 40, 10_000]),
    events=st.randoms(use_true_random=False),
)
def test_shares_hold_and_every_score_goes_or_is_dropped(asked, budget, events):
    scheduler = scheduler_of(budget=budget)
    to_ask = [
        score((child,), tokens, problem=problem, may_be_pruned=may_be_pruned)
        for problem, child, tokens, may_be_pruned in asked
    ]
    waiting, in_flight, sent, dropped, needed = [], [], [], [], set()
    while to_ask or waiting or in_flight:
        what = events.choice(["ask", "ask", "end", "drop", "need"])
        if what == "ask" and to_ask:
            waiting.append(to_ask.pop())
            add(scheduler, waiting[-1])
        elif what == "drop" and waiting:
            dropped.append(waiting.pop(events.randrange(len(waiting))))
            assert scheduler.drop(dropped[-1])
        elif what == "need" and (jobs := waiting + in_flight):
            needed.add(job := events.choice(jobs))
            scheduler.require(job)
        elif in_flight:
            scheduler.end(in_flight.pop(events.randrange(len(in_flight))))
        opened = sum(job.tokens for job in in_flight)
        for job in send(scheduler):
            if job.work.may_be_pruned and job not in needed:
                assert opened < CROWD or budget <= CROWD, "it waits for room"
                opened += job.tokens
            waiting.remove(job)
            in_flight.append(job)
            sent.append(job)
        assert scheduler.pending == (0, len(waiting))
        assert in_flight or not waiting, "something goes while anything waits"
        if what != "ask" and budget > 1000 and sum(job.tokens for job in in_flight) >= CROWD:
            assert not needed.intersection(waiting), "in a crowd the needed ones do not wait"
        for problem in range(5):
            used = [
                job.tokens
                for job in in_flight
                if job.work.may_be_pruned and job not in needed and job.problem == problem
            ]
            assert sum(used) <= SHARE or len(used) == 1
    assert Counter(map(id, sent + dropped)) == Counter({id(job): 1 for job in sent + dropped})
    assert len(sent) + len(dropped) == len(asked)


@given(
    tokens=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), min_size=1, max_size=40),
    ended=st.integers(0, 5),
)
def test_a_problem_that_has_ended_leaves_nothing_behind(tokens, ended):
    scheduler = scheduler_of()
    jobs = [score((child,), each, problem=of) for child, (of, each) in enumerate(tokens)]
    add(scheduler, *jobs)
    in_flight, done = send(scheduler), set()
    for job in [job for job in in_flight if job.problem == 0][:ended]:
        scheduler.end(job)
        in_flight.remove(job)
    scheduler.end_problem(0)
    in_flight += send(scheduler)
    while in_flight:
        scheduler.end(job := in_flight.pop())
        done.add(job)
        in_flight += send(scheduler)
    assert {job for job in done if job.problem == 1} == {job for job in jobs if job.problem == 1}
    assert scheduler.pending == scheduler.in_flight == (0, 0)
