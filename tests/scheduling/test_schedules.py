"""Schedules and queues: budgets, order, slots for guesses."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import (
    SAMPLING,
    Supply,
    decide,
    generate,
    learn,
    learn_score,
    of_generator,
    of_verifier,
    score,
    send,
    speculative,
)

from tts.scheduling import Job, Policy, ScheduleName, Scheduler, WorkKind
from tts.search import Expand, Score

SCHEDULES = get_args(ScheduleName)


class World:
    """Problems of some rounds, each of which generates a few thoughts and then scores them."""

    def __init__(
        self, schedule, seed, *, requests=6, tokens=40, problems=6, at_once=None, **shared
    ):
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(Policy(schedule, requests, tokens, at_once, **shared))
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

    def new_score(self, problem, child, tokens):
        return score(problem, child, tokens)

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
            self.scheduler.add(self.new_score(job.problem, job.work.node[0], tokens))
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
    shared=st.sampled_from([{}, {"one_device": True}, {"one_core": True}]),
    at_once=st.none() | st.integers(1, 3),
)
def test_all_work_is_done_within_the_budgets(schedule, seed, requests, tokens, shared, at_once):
    def check(world, jobs):
        assert len(world.left) <= (at_once or 6)
        generating, scoring = of_generator(world.flying), of_verifier(world.flying)
        assert len(generating) <= requests
        assert len(scoring) <= 1 or sum(job.tokens for job in scoring) <= tokens
        assert world.scheduler.in_flight == (len(generating), len(scoring))
        if schedule != "decoupled" or "one_core" in shared:
            assert not (generating and scoring), "both models at once"
        if schedule == "lockstep":
            assert len({job.problem for job in world.flying}) == 1
        if schedule == "alternating":
            assert len(world.flying) == len(jobs), "a turn began before the last one was over"

    limits = {"requests": requests, "tokens": tokens, "at_once": at_once}
    world = World(schedule, seed, **limits, **shared)
    for load in [1, 4] * 20:  # a step of one score takes as long as one of four
        learn_score(world.scheduler, load, 1.0)
    world.run(check)


class Changing(World):
    """Engines whose times change on the way, and scores of which some may not be needed."""

    def end(self, job):
        times = self.rng.choice([1, 4, 16]), self.rng.choice([0, 3, 30]), self.rng.random()
        self.scheduler.learn(job, *times)
        super().end(job)
        if held := [each for each in self.flying if not each.generates]:
            self.scheduler.require(self.rng.choice(held))

    def new_score(self, problem, child, tokens):
        work = Score((child,), may_be_pruned=self.rng.random() < 0.7)
        return Job(problem, work, tokens, WorkKind.MAIN, cost=tokens)


@settings(max_examples=amount(100, 400), deadline=None)
@given(
    seed=st.integers(0, 10**9),
    requests=st.integers(1, 9),
    tokens=st.integers(1, 80),
    step_tokens=st.sampled_from([5, 20]),
    shared=st.sampled_from([{}, {"one_device": True}, {"one_core": True}]),
)
def test_all_work_is_done_whatever_turns_out_on_the_way(
    seed, requests, tokens, step_tokens, shared
):
    def check(world, jobs):
        generating, scoring = of_generator(world.flying), of_verifier(world.flying)
        assert len(generating) <= requests
        assert len(scoring) <= 1 or sum(job.tokens for job in scoring) <= tokens

    limits = {"requests": requests, "tokens": tokens, "verifier_step_tokens": step_tokens}
    Changing("decoupled", seed, **limits, **shared).run(check)


@pytest.mark.parametrize(("score_s", "at_once"), [(0.9, False), (1.1, True)])
def test_on_one_core_the_models_take_turns_until_a_score_adds_more_than_a_step_costs(
    score_s, at_once
):
    scheduler = Scheduler(Policy("decoupled", 6, 400, one_core=True))
    for is_learnt in (False, True):
        scheduler.add(generate(0, 0))
        scheduler.add(score(0, 1, 10))
        sent = send(scheduler)
        assert len(sent) == (3 if at_once and is_learnt else 1)
        for job in sent:
            scheduler.end(job)
        for load in [1, 4] * 20:
            learn_score(scheduler, load, 1.0 + score_s * load)


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


def test_main_work_goes_before_eager_before_speculative_and_old_before_young():
    scheduler = Scheduler(Policy("decoupled", 10, 10))
    jobs = [
        generate(0, 1, WorkKind.SPECULATIVE),
        generate(1, 2, WorkKind.EAGER),
        generate(2, 3, WorkKind.MAIN),
        generate(1, 4, WorkKind.MAIN),
        generate(1, 5, WorkKind.MAIN),
    ]
    for job in jobs:
        scheduler.add(job)
    assert [job.work.node[0] for job in send(scheduler)] == [4, 5, 3, 2, 1]


@settings(max_examples=100, deadline=None)
@given(priorities=st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_work_of_a_higher_priority_goes_first_whatever_its_kind_or_age(priorities):
    scheduler = Scheduler(Policy("decoupled", len(priorities), 100))
    for problem, priority in enumerate(priorities):
        kind = WorkKind.EAGER if problem % 2 else WorkKind.MAIN
        scheduler.add(Job(problem, Expand((problem,), problem, SAMPLING), 5, kind, priority))
    sent = send(scheduler)
    assert [job.priority for job in sent] == sorted(priorities, reverse=True)
    ranks = [(-job.priority, job.kind, job.problem) for job in sent]
    assert ranks == sorted(ranks)


def test_an_urgent_problem_starts_before_pending_work_of_others():
    scheduler = Scheduler(Policy("decoupled", 2, 100))
    scheduler.add(generate(0, 0))
    send(scheduler)
    for child in (1, 2):
        scheduler.add(generate(0, child))
    send(scheduler)
    scheduler.add(generate(0, 3))

    started = []
    supply = Supply([7], start=started.append, priority=1)
    assert send(scheduler, supply) == []
    assert started == [], "no slot is free"
    scheduler.end(generate(0, 0))
    send(scheduler, supply)
    assert started == [7]


def test_speculation_has_what_main_work_leaves_and_gives_it_back():
    scheduler = Scheduler(Policy("decoupled", 4, 100, speculation="always"))
    guesses = [speculative(10), speculative(11), speculative(12)]
    main = [generate(0, child) for child in range(2)]
    for job in main:
        scheduler.add(job)
    assert send(scheduler, Supply(guesses=guesses)) == [*main, *guesses[:2]]
    assert send(scheduler, Supply(guesses=guesses[2:])) == []
    wanted = generate(0, 2)
    scheduler.add(wanted)
    cancelled, sent = decide(scheduler)
    assert sent == [wanted], "main work does not wait for speculation"
    assert cancelled == [guesses[1]]
    scheduler.end(guesses[1])
    assert scheduler.spare_slots.overdrawn() == []
    scheduler.spare_slots.promote(guesses[0])
    assert scheduler.in_flight == (4, 0)
    assert guesses[0].kind is WorkKind.MAIN
    scheduler.add(generate(0, 3))
    assert send(scheduler) == [], "what was promoted has its slot for good"


@settings(max_examples=amount(25, 100), deadline=None)
@given(
    ranks=st.lists(
        st.tuples(st.integers(1, 3), st.floats(0, 1), st.integers(0, 2)), min_size=4, max_size=4
    ),
    wanted=st.integers(1, 4),
)
def test_the_least_promising_guesses_give_up_their_slots(ranks, wanted):
    scheduler = Scheduler(Policy("decoupled", 4, 100, speculation="always"))
    guesses = [
        speculative(child, problem=problem, level=level, chance=chance)
        for child, (level, chance, problem) in enumerate(ranks)
    ]
    assert send(scheduler, Supply(guesses=guesses)) == guesses
    for child in range(wanted):
        scheduler.add(generate(0, child))
    cancelled, _ = decide(scheduler)
    kept = [job for job in guesses if job not in cancelled]
    assert len(cancelled) == wanted
    for job in cancelled:
        assert all((-job.level, job.chance) <= (-other.level, other.chance) for other in kept)
    assert set(cancelled) <= set(guesses)


@pytest.mark.parametrize("schedule", ["lockstep", "batched"])
def test_phases_do_not_speculate(schedule):
    scheduler = Scheduler(Policy(schedule, 4, 100, speculation="always"))
    main = generate(0, 0)
    scheduler.add(main)
    assert send(scheduler, Supply(guesses=[speculative(9)])) == [main]


def test_alternating_fills_the_generators_turn_with_speculation():
    scheduler = Scheduler(Policy("alternating", 4, 100, speculation="always"))
    guesses = Supply(guesses=[speculative(child) for child in range(10, 15)])
    main = generate(0, 0)
    scheduler.add(main)
    sent = send(scheduler, guesses)
    assert sent == [main, *guesses.guesses[:3]]
    assert send(scheduler, guesses) == [], "the batch is on its way"
    for job in sent:
        scheduler.end(job)
    scoring = score(0, 0, 5)
    scheduler.add(scoring)
    assert send(scheduler, guesses) == [scoring], "it is the verifier's turn"


@pytest.mark.parametrize(("mode", "sent"), [("auto", 0), ("always", 4), ("off", 0)])
def test_auto_does_not_speculate_while_the_verifier_is_behind(mode, sent):
    scheduler = Scheduler(Policy("decoupled", 4, 10, speculation=mode))
    for child in range(2):
        scheduler.add(score(0, child, 8))
    guesses = Supply(guesses=[speculative(child) for child in range(9)])
    assert len(of_generator(send(scheduler, guesses))) == sent


@settings(max_examples=amount(12, 50), deadline=None)
@given(fixed=st.floats(0.1, 10), each=st.floats(0.001, 1), chance=st.floats(0.05, 1))
def test_speculation_pays_up_to_the_share_of_throughput_that_it_may_lose(fixed, each, chance):
    """Steps of fixed + each * load: the share of the limit is (each * load) / step."""
    scheduler = Scheduler(Policy("decoupled", 512, 100))
    assert not scheduler.spare_slots.pays(1.0), "nothing is known yet"
    for load in [4, 32] * 20:
        learn(scheduler, load, 10, 10 * (fixed + each * load))
    guesses = [speculative(child, chance=chance) for child in range(512)]
    admitted = len(send(scheduler, Supply(guesses=guesses)))

    def share(load):
        return each * load / (fixed + each * load)

    assert admitted == 0 or share(admitted) <= chance + 1e-6
    assert admitted == 512 or share(admitted + 1) >= chance - 1e-6


@pytest.mark.parametrize(
    ("one_device", "scores", "sent"), [(True, 1, 0), (True, 0, 1), (False, 1, 1)]
)
def test_a_guess_on_a_shared_device_costs_the_verifier_as_much_while_it_computes(
    one_device, scores, sent
):
    scheduler = Scheduler(Policy("decoupled", 512, 1000, one_device=one_device))
    for load in [4, 32] * 20:
        learn(scheduler, load, 10, 10 * (14 + load))  # at a load of 6 the share is 0.3
    for child in range(5 - scores):
        scheduler.add(generate(0, child))
    for child in range(scores):
        scheduler.add(score(0, child, 8))
    assert len(send(scheduler)) == 5
    guess = speculative(9, chance=0.4)
    assert len(send(scheduler, Supply(guesses=[guess]))) == sent


def test_a_saturated_engine_is_not_speculated_on_before_it_was_seen_at_smaller_loads():
    scheduler = Scheduler(Policy("decoupled", 64, 100))
    for load in [60, 61, 62, 63] * 100:
        learn(scheduler, load, 10, 10.0)
    guesses = [speculative(child, chance=0.1) for child in range(99)]
    assert send(scheduler, Supply(guesses=guesses)) == []
    for load in [16] * 20:
        learn(scheduler, load, 10, 10.0)
    assert scheduler.spare_slots.pays(0.1), "no request was slower for being one of more"
    assert len(send(scheduler, Supply(guesses=guesses))) == 64
