"""The schedules over random work: budgets, turns, and that none of them ever gets stuck."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import Supply, generate, of_generator, of_verifier, score, send

from tts.scheduling import Policy, ScheduleName, Scheduler, WorkKind
from tts.search import Expand

SCHEDULES = get_args(ScheduleName)


class World:
    """Problems of some rounds, each of which generates a few thoughts and then scores them."""

    def __init__(
        self, schedule, seed, *, requests=6, tokens=40, problems=6, at_once=None, one_device=False
    ):
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(
            Policy(schedule, requests, tokens, at_once, one_device=one_device)
        )
        self.supply = Supply(range(problems), start=self.start)
        self.left, self.open, self.flying = {}, {}, []
        self.child = 0

    def new_round(self, problem, kind):
        jobs = []
        for _ in range(self.rng.randint(1, 5)):
            self.child += 1
            jobs.append(generate(problem, self.child, kind))
        self.open[problem] = self.open.get(problem, 0) + len(jobs)
        if kind is WorkKind.EAGER:
            self.scheduler.start_problem(problem, [job.work for job in jobs])
        for job in jobs:
            self.scheduler.add(job)

    def start(self, problem):
        self.left[problem] = self.rng.randint(1, 4)
        self.new_round(problem, WorkKind.EAGER)

    def run(self, check):
        while True:
            jobs = send(self.scheduler, self.supply)
            self.flying += jobs
            if jobs:
                check(self, jobs)
            if not self.flying:
                break
            self.end(self.flying.pop(self.rng.randrange(len(self.flying))))
        assert not self.supply.queued
        assert not self.left, "stuck: nothing is in flight, and problems are unfinished"

    def end(self, job):
        self.scheduler.end(job)
        if isinstance(job.work, Expand):
            tokens = self.rng.choice([3, 10, 30, 50])  # the last is more than the budget
            self.scheduler.add(score(job.problem, job.work.node[0], tokens))
            return
        self.open[job.problem] -= 1
        if not self.open[job.problem]:
            self.left[job.problem] -= 1
            if self.left[job.problem]:
                self.new_round(job.problem, WorkKind.MAIN)
            else:
                del self.left[job.problem]
                self.scheduler.end_problem(job.problem)


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=amount(50, 200), deadline=None)
@given(
    seed=st.integers(0, 10**9),
    requests=st.integers(1, 9),
    tokens=st.integers(1, 80),
    one_device=st.booleans(),
    at_once=st.none() | st.integers(1, 3),
)
def test_all_work_is_done_within_the_budgets(schedule, seed, requests, tokens, one_device, at_once):
    def check(world, jobs):
        assert len(world.left) <= (at_once or 6)
        generating, scoring = of_generator(world.flying), of_verifier(world.flying)
        assert len(generating) <= requests
        assert len(scoring) <= 1 or sum(job.tokens for job in scoring) <= tokens
        assert world.scheduler.in_flight == (len(generating), len(scoring))
        if schedule != "decoupled":
            assert not (generating and scoring), "both models at once"
        if schedule == "lockstep":
            assert len({job.problem for job in world.flying}) == 1
        if schedule == "alternating":
            assert len(world.flying) == len(jobs), "a turn began before the last one was over"

    policy = {"requests": requests, "tokens": tokens, "one_device": one_device, "at_once": at_once}
    World(schedule, seed, **policy).run(check)


@settings(max_examples=amount(25, 100), deadline=None)
@given(seed=st.integers(0, 10**9))
def test_batched_fills_the_generators_batch_while_problems_are_queued(seed):
    def check(world, jobs):
        begins = of_generator(jobs) and len(world.flying) == len(jobs)
        if begins and world.supply.queued:
            assert len(jobs) == 6

    World("batched", seed, problems=20).run(check)


def test_batched_starts_no_problem_beyond_a_full_batch():
    scheduler = Scheduler(Policy("batched", 6, 40, None))

    def start(problem):
        for child in range(3):
            scheduler.add(generate(problem, child, WorkKind.EAGER))

    supply = Supply(range(4), start=start)
    assert len(send(scheduler, supply)) == 6
    assert supply.queued == [2, 3]


@pytest.mark.parametrize(("backlog", "starts"), [(9, True), (10, False), (11, False)])
def test_decoupled_starts_no_problem_while_a_whole_batch_waits_for_the_verifier(backlog, starts):
    scheduler = Scheduler(Policy("decoupled", 2, 10))
    scheduler.add(score(0, 0, 10))
    assert len(send(scheduler)) == 1
    scheduler.add(score(0, 1, backlog))
    started = []
    send(scheduler, Supply([7], start=started.append))
    assert bool(started) is starts


@pytest.mark.parametrize("at_work", ["generator", "verifier"])
def test_alternating_starts_no_problem_within_a_turn(at_work):
    """Its scores are not known yet: they may fill the verifier's next batches."""
    scheduler = Scheduler(Policy("alternating", 2, 10))
    job = generate(0, 0) if at_work == "generator" else score(0, 0, 4)
    scheduler.add(job)
    assert send(scheduler) == [job]
    started = []
    supply = Supply([7], start=started.append)
    assert send(scheduler, supply) == []
    assert started == []
    scheduler.end(job)
    send(scheduler, supply)
    assert started == [7]


def test_alternating_gives_the_models_turns_of_one_batch():
    scheduler = Scheduler(Policy("alternating", 2, 10))

    def turn():
        jobs = send(scheduler)
        assert send(scheduler) == [], "one batch a turn"
        for job in jobs:
            scheduler.end(job)
        return [job.work.node[0] for job in jobs]

    for child in range(5):
        scheduler.add(generate(0, child))
    assert turn() == [0, 1]
    assert turn() == [2, 3], "the verifier passes: it has nothing to do"
    for child in (10, 11, 12):
        scheduler.add(score(0, child, 4))
    assert turn() == [10, 11]
    assert turn() == [4]
    assert turn() == [12]
    assert turn() == []
