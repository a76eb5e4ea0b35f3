"""The schedules over random work: budgets, turns, and that none of them ever gets stuck."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.scheduling import Actions, Job, Kind, Policy, ScheduleName, Scheduler
from tts.scheduling.scheduler import CAUTION
from tts.search import Expand, Sampling, Score

SCHEDULES = get_args(ScheduleName)
SAMPLING = Sampling(0.8, 1.0, 10)


def generate(problem, child, kind=Kind.MAIN, tokens=5):
    return Job(problem, Expand((child,), child, SAMPLING), tokens, kind)


def score(problem, child, tokens):
    return Job(problem, Score((child,)), tokens, Kind.MAIN)


class Supply:
    """Queued problems and guesses, as a driver would supply them."""

    def __init__(self, queued=(), guesses=(), start=lambda problem: None):
        self.queued, self.waiting, self.start = list(queued), list(guesses), start

    def next_priority(self):
        return 0 if self.queued else None

    def start_problem(self):
        self.start(self.queued.pop(0))

    def guesses(self):
        return iter([job for job in self.waiting if job.kind is Kind.SPECULATIVE])


NOTHING = Supply()


def send(scheduler, now=0.0, supply=NOTHING):
    """What may be sent now, where nothing is to be cancelled."""
    actions = scheduler.next(now, supply)
    assert actions.cancel == []
    return actions.send


class World:
    """Problems of some rounds, each of which generates a few thoughts and then scores them."""

    def __init__(self, schedule, seed, *, requests=6, tokens=40, problems=6, at_once=None):
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(Policy(schedule, requests, tokens, at_once))
        self.supply = Supply(range(problems), start=self.start)
        self.left = {}
        self.open = {}
        self.batches = []
        self.flying = []
        self.child = 0
        self.max_tokens = tokens

    def new_round(self, problem, kind):
        for _ in range(self.rng.randint(1, 5)):
            self.child += 1
            self.open[problem] = self.open.get(problem, 0) + 1
            self.scheduler.add(generate(problem, self.child, kind), 0.0)

    @property
    def queued(self):
        return self.supply.queued

    def start(self, problem):
        self.left[problem] = self.rng.randint(1, 4)
        self.new_round(problem, Kind.EAGER)

    def run(self, check):
        while True:
            jobs = send(self.scheduler, supply=self.supply)
            self.flying += jobs
            if jobs:
                self.batches.append(jobs)
                check(self, jobs)
            if not self.flying:
                break
            self.end(self.flying.pop(self.rng.randrange(len(self.flying))))
        assert not self.queued
        assert not self.left, "stuck: nothing is in flight, and problems are unfinished"

    def end(self, job):
        self.scheduler.ended(job)
        if isinstance(job.work, Expand):
            tokens = self.rng.choice([3, 10, 30, 50])  # the last is more than the budget
            self.scheduler.add(score(job.problem, job.work.node[0], tokens), 0.0)
            return
        self.open[job.problem] -= 1
        if not self.open[job.problem]:
            self.left[job.problem] -= 1
            if self.left[job.problem]:
                self.new_round(job.problem, Kind.MAIN)
            else:
                del self.left[job.problem]
                self.scheduler.problem_ended(job.problem)


def of_generator(jobs):
    return [job for job in jobs if isinstance(job.work, Expand)]


def of_verifier(jobs):
    return [job for job in jobs if isinstance(job.work, Score)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9), requests=st.integers(1, 9), tokens=st.integers(1, 80))
def test_all_work_is_done_within_the_budgets(schedule, seed, requests, tokens):
    def check(world, jobs):
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

    World(schedule, seed, requests=requests, tokens=tokens).run(check)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_batched_fills_the_generators_batch_while_problems_are_queued(seed):
    def check(world, jobs):
        begins = of_generator(jobs) and len(world.flying) == len(jobs)
        if begins and world.queued:
            assert len(jobs) == 6

    World("batched", seed, problems=20).run(check)


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**9), at_once=st.integers(1, 3))
def test_no_more_problems_run_at_once_than_the_policy_allows(schedule, seed, at_once):
    def check(world, jobs):
        assert len(world.left) <= at_once

    World(schedule, seed, at_once=at_once).run(check)


def test_alternating_gives_the_models_turns_of_one_batch():
    scheduler = Scheduler(Policy("alternating", 2, 10))

    def turn():
        jobs = send(scheduler)
        assert send(scheduler) == [], "one batch a turn"
        for job in jobs:
            scheduler.ended(job)
        return [job.work.node[0] for job in jobs]

    for child in range(5):
        scheduler.add(generate(0, child), 0.0)
    assert turn() == [0, 1]
    assert turn() == [2, 3], "the verifier passes: it has nothing to do"
    for child in (10, 11, 12):
        scheduler.add(score(0, child, 4), 0.0)
    assert turn() == [10, 11]
    assert turn() == [4]
    assert turn() == [12]
    assert turn() == []


def test_main_work_goes_before_eager_before_speculative_and_old_before_young():
    scheduler = Scheduler(Policy("decoupled", 10, 10))
    jobs = [
        generate(0, 1, Kind.SPECULATIVE),
        generate(1, 2, Kind.EAGER),
        generate(2, 3, Kind.MAIN),
        generate(1, 4, Kind.MAIN),
        generate(1, 5, Kind.MAIN),
    ]
    for job in jobs:
        scheduler.add(job, 0.0)
    assert [job.work.node[0] for job in send(scheduler)] == [4, 5, 3, 2, 1]


def test_a_finished_problem_leaves_nothing_behind():
    scheduler = Scheduler(Policy("decoupled", 1, 10))
    for child in range(3):
        scheduler.add(generate(0, child), 0.0)
    scheduler.add(generate(1, 9), 0.0)
    (first,) = send(scheduler)
    scheduler.ended(first)
    scheduler.problem_ended(0)
    assert [job.problem for job in send(scheduler)] == [1]


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


@settings(max_examples=200, deadline=None)
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


def speculative(child, *, problem=0, level=1, chance=0.5):
    work = Expand((child,), child, SAMPLING)
    return Job(problem, work, 5, Kind.SPECULATIVE, level=level, chance=chance)


def test_speculation_has_what_main_work_leaves_and_gives_it_back():
    scheduler = Scheduler(Policy("decoupled", 4, 100, speculation="always"))
    guesses = [speculative(10), speculative(11), speculative(12)]
    main = [generate(0, child) for child in range(2)]
    for job in main:
        scheduler.add(job, 0.0)
    assert send(scheduler, supply=Supply(guesses=guesses)) == [*main, *guesses[:2]]
    assert send(scheduler, supply=Supply(guesses=guesses[2:])) == []
    wanted = generate(0, 2)
    scheduler.add(wanted, 0.0)
    actions = scheduler.next(0.0, NOTHING)
    assert actions.send == [wanted], "main work does not wait for speculation"
    assert actions.cancel == [guesses[1]]
    scheduler.ended(guesses[1])
    assert scheduler.next(0.0, NOTHING).cancel == []
    scheduler.promote(guesses[0])
    assert scheduler.in_flight == (4, 0)
    assert guesses[0].kind is Kind.MAIN
    scheduler.add(generate(0, 3), 0.0)
    assert send(scheduler) == [], "what was promoted has its slot for good"


@settings(max_examples=100, deadline=None)
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
    assert send(scheduler, supply=Supply(guesses=guesses)) == guesses
    for child in range(wanted):
        scheduler.add(generate(0, child), 0.0)
    actions = scheduler.next(0.0, NOTHING)
    kept = [job for job in guesses if job not in actions.cancel]
    assert len(actions.cancel) == wanted
    for job in actions.cancel:
        assert all((-job.level, job.chance) <= (-other.level, other.chance) for other in kept)
    assert set(actions.cancel) <= set(guesses)


@pytest.mark.parametrize("schedule", ["lockstep", "batched"])
def test_phases_do_not_speculate(schedule):
    scheduler = Scheduler(Policy(schedule, 4, 100, speculation="always"))
    main = generate(0, 0)
    scheduler.add(main, 0.0)
    assert send(scheduler, supply=Supply(guesses=[speculative(9)])) == [main]


def test_alternating_fills_the_generators_turn_with_speculation():
    scheduler = Scheduler(Policy("alternating", 4, 100, speculation="always"))
    guesses = Supply(guesses=[speculative(child) for child in range(10, 15)])
    main = generate(0, 0)
    scheduler.add(main, 0.0)
    sent = send(scheduler, supply=guesses)
    assert sent == [main, *guesses.waiting[:3]]
    assert send(scheduler, supply=guesses) == [], "the batch is on its way"
    for job in sent:
        scheduler.ended(job)
    scoring = score(0, 0, 5)
    scheduler.add(scoring, 0.0)
    assert send(scheduler, supply=guesses) == [scoring], "it is the verifier's turn"


@pytest.mark.parametrize(("mode", "sent"), [("auto", 0), ("always", 4), ("off", 0)])
def test_auto_does_not_speculate_while_the_verifier_is_behind(mode, sent):
    scheduler = Scheduler(Policy("decoupled", 4, 10, speculation=mode))
    for child in range(2):
        scheduler.add(score(0, child, 8), 0.0)
    guesses = Supply(guesses=[speculative(child) for child in range(9)])
    assert len(of_generator(send(scheduler, supply=guesses))) == sent


@settings(max_examples=100, deadline=None)
@given(priorities=st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_work_of_a_higher_priority_goes_first_whatever_its_kind_or_age(priorities):
    scheduler = Scheduler(Policy("decoupled", len(priorities), 100))
    for problem, priority in enumerate(priorities):
        kind = Kind.EAGER if problem % 2 else Kind.MAIN
        scheduler.add(Job(problem, Expand((problem,), problem, SAMPLING), 5, kind, priority), 0.0)
    sent = send(scheduler)
    assert [job.priority for job in sent] == sorted(priorities, reverse=True)
    ranks = [(-job.priority, job.kind, job.problem) for job in sent]
    assert ranks == sorted(ranks)


def test_an_urgent_problem_starts_before_pending_work_of_others():
    scheduler = Scheduler(Policy("decoupled", 2, 100))
    scheduler.add(generate(0, 0), 0.0)
    send(scheduler)
    for child in (1, 2):
        scheduler.add(generate(0, child), 0.0)
    send(scheduler)
    scheduler.add(generate(0, 3), 0.0)

    class Urgent(Supply):
        def next_priority(self):
            return 1 if self.queued else None

    started = []
    supply = Urgent([7], start=started.append)
    assert send(scheduler, supply=supply) == []
    assert started == [], "no slot is free"
    scheduler.ended(generate(0, 0))
    send(scheduler, supply=supply)
    assert started == [7]


@settings(max_examples=50, deadline=None)
@given(fixed=st.floats(0.1, 10), each=st.floats(0.001, 1), chance=st.floats(0.05, 1))
def test_speculation_pays_up_to_the_share_of_throughput_that_it_may_lose(fixed, each, chance):
    """Steps of fixed + each * load: the share of the limit is (each * load) / step."""
    scheduler = Scheduler(Policy("decoupled", 512, 100))
    assert not scheduler.pays(1.0), "nothing is known yet"
    for load in [4, 32] * 20:
        scheduler.learn(load, 10, 10 * (fixed + each * load))
    guesses = [speculative(child, chance=chance) for child in range(512)]
    admitted = len(send(scheduler, supply=Supply(guesses=guesses)))

    def share(load):
        return each * load / (fixed + each * load)

    assert admitted == 0 or CAUTION * share(admitted) <= chance + 1e-6
    assert admitted == 512 or CAUTION * share(admitted + 1) >= chance - 1e-6


def test_a_saturated_engine_is_not_speculated_on_before_it_was_seen_at_smaller_loads():
    scheduler = Scheduler(Policy("decoupled", 64, 100))
    for load in [60, 61, 62, 63] * 100:
        scheduler.learn(load, 10, 10.0)
    guesses = [speculative(child, chance=0.1) for child in range(99)]
    assert send(scheduler, supply=Supply(guesses=guesses)) == []
    for load in [16] * 20:
        scheduler.learn(load, 10, 10.0)
    assert scheduler.pays(0.1), "no request was slower for being one of more"
    assert len(send(scheduler, supply=Supply(guesses=guesses))) == 64
