"""Decoupled engines on one device: the generator's work gathers while the verifier computes."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import (
    SAMPLING,
    Supply,
    generate,
    learn,
    learn_score,
    of_generator,
    of_verifier,
    score,
    send,
    speculative,
)

from tts.scheduling import Policy, Scheduler, WorkKind
from tts.scheduling.schedules import gathering_pays, waiting_pays
from tts.search import Expand

REQUESTS, TOKENS = 64, 10000


def new_scheduler(*, shared=True, **policy):
    return Scheduler(Policy("decoupled", REQUESTS, TOKENS, shared=shared, **policy))


def scoring(scheduler, count, problem=0):
    """So many scores in flight."""
    for child in range(count):
        scheduler.add(score(problem, 1000 + child, 400))
    sent = of_verifier(send(scheduler))
    assert len(sent) == count
    return sent


def test_the_generators_work_gathers_until_the_verifier_has_nothing_left():
    scheduler = new_scheduler()
    scores = scoring(scheduler, 20)
    for child in range(9):
        scheduler.add(generate(0, child))
        assert send(scheduler) == []
    for job in scores[:-1]:
        scheduler.ended(job)
    scheduler.ended(scores[-1])
    assert len(send(scheduler)) == 9


def test_on_devices_of_their_own_nothing_waits():
    scheduler = new_scheduler(shared=False)
    scoring(scheduler, 20)
    scheduler.add(generate(0, 0))
    assert len(send(scheduler)) == 1


def test_beside_many_others_work_goes_at_once():
    """Then the generator's steps go on for them anyway."""
    scheduler = new_scheduler()
    for child in range(30):
        scheduler.add(generate(0, child))
    assert len(send(scheduler)) == 30
    scoring(scheduler, 20)
    scheduler.add(generate(0, 40))
    assert len(send(scheduler)) == 1


def generating(scheduler, count):
    """So many requests in flight on the generator."""
    for child in range(count):
        scheduler.add(generate(0, child))
    assert len(of_generator(send(scheduler))) == count


def took(scheduler, *, request_s, step_s):
    """Both engines have shown how long they take, whatever their load."""
    for load in [1, 4] * 20:
        learn(scheduler, load, 10, request_s)
        learn_score(scheduler, load, step_s)


def test_an_idle_verifier_waits_while_scores_come_sooner_than_a_step_costs():
    """Of five requests of 0.5 s one ends every 0.1 s: the third score finds 0.3 s lost."""
    scheduler = new_scheduler()
    took(scheduler, request_s=0.5, step_s=0.5)
    generating(scheduler, 5)
    for child in range(2):
        scheduler.add(score(0, child, 200))
        assert send(scheduler) == []
    scheduler.add(score(0, 2, 200))
    assert len(send(scheduler)) == 3
    scheduler.add(score(0, 3, 400))
    assert len(send(scheduler)) == 1, "it joins the engine's next step"


def test_scores_do_not_wait_for_longer_than_their_step_takes():
    scheduler = new_scheduler()
    took(scheduler, request_s=0.5, step_s=0.05)
    generating(scheduler, 5)
    scheduler.add(score(0, 0, 200))
    assert len(send(scheduler)) == 1


@pytest.mark.parametrize("learnt", ["nothing", "generator", "verifier"])
def test_no_score_waits_before_both_engines_have_shown_how_long_they_take(learnt):
    scheduler = new_scheduler()
    for _ in range(20):
        if learnt == "generator":
            learn(scheduler, 5, 10, 0.1)
        if learnt == "verifier":
            learn_score(scheduler, 1, 100.0)
    generating(scheduler, 5)
    scheduler.add(score(0, 0, 200))
    assert len(send(scheduler)) == 1


def test_scores_that_wait_for_others_do_not_stop_speculation():
    scheduler = new_scheduler(speculation="auto")
    took(scheduler, request_s=0.5, step_s=0.5)  # and a request more costs nothing
    generating(scheduler, 5)
    scheduler.add(score(0, 0, 200))
    guess = speculative(9)
    assert send(scheduler, Supply(guesses=[guess])) == [guess]


@given(
    scores=st.integers(1, 300),
    gap_s=st.floats(1e-4, 10),
    step_s=st.floats(1e-4, 10),
)
def test_a_step_waits_until_its_scores_have_lost_what_it_costs(scores, gap_s, step_s):
    arrivals = [place * gap_s for place in range(scores)]
    lost = sum(scores * gap_s - arrival for arrival in arrivals)  # when the next one comes
    assume(abs(lost / step_s - 1) > 1e-6)
    assert waiting_pays(scores, gap_s, step_s) is (lost < step_s)


@given(count=st.integers(1, 20), gap_s=st.floats(0.01, 5), step_s=st.floats(0.1, 5))
def test_waiting_costs_twice_the_least_at_most_where_scores_come_evenly(count, gap_s, step_s):
    """Beside every way to divide as many scores into steps: a cost per step, and time lost."""

    def cost(size):
        return step_s + gap_s * size * (size - 1) / 2

    best = [0.0]
    for scores in range(1, count + 1):
        best.append(min(best[scores - size] + cost(size) for size in range(1, scores + 1)))
    size = 1
    while size < count and waiting_pays(size, gap_s, step_s):
        size += 1
    full, rest = divmod(count, size)
    assert full * cost(size) + (cost(rest) if rest else 0) <= 2 * best[count] + 1e-9


def test_a_score_that_everything_waits_for_goes_at_once():
    scheduler = new_scheduler(speculation="always")
    guess = speculative(9)
    assert send(scheduler, Supply(guesses=[guess])) == [guess]
    scheduler.add(score(0, 0, 1))
    assert len(send(scheduler)) == 1


def test_while_work_gathers_nothing_is_guessed():
    scheduler = new_scheduler(speculation="always")
    scoring(scheduler, 20)
    scheduler.add(generate(0, 0))
    assert send(scheduler, Supply(guesses=[speculative(9)])) == []


@settings(max_examples=amount(75, 300), deadline=None)
@given(running=st.integers(0, 600), batch=st.integers(1, 3000))
def test_gathering_pays_where_a_request_adds_fewer_steps_to_the_batch(running, batch):
    beside = 1 / (running + 1)
    share = sum(1 / place for place in range(1, batch + 1)) / batch
    assume(abs(beside / share - 1) > 1 / batch)  # the harmonic number is approximate
    assert gathering_pays(running, batch) is (share < beside)


@settings(max_examples=amount(50, 200), deadline=None)
@given(seed=st.integers(0, 10**9))
def test_work_waits_only_while_the_other_engine_computes(seed):
    """Whatever comes, ends or is dropped: with nothing else in flight, all that fits is sent."""
    rng = random.Random(seed)
    scheduler = new_scheduler()
    took(scheduler, request_s=0.5, step_s=rng.uniform(0, 1))
    flying, waiting = [], []
    for child in range(120):
        event = rng.random()
        if event < 0.4:
            job = generate(0, child) if rng.random() < 0.5 else score(0, child, rng.randint(1, 800))
            scheduler.add(job)
            waiting.append(job)
        elif event < 0.5 and waiting:
            assert scheduler.drop(waiting.pop(rng.randrange(len(waiting))))
        elif flying:
            scheduler.ended(flying.pop(rng.randrange(len(flying))))
        sent = send(scheduler)
        flying += sent
        waiting = [job for job in waiting if job not in sent]
        generating, scores = of_generator(flying), of_verifier(flying)
        if not scores:
            assert not of_generator(waiting) or len(generating) == REQUESTS
        if not generating and sum(job.tokens for job in scores) < TOKENS - 800:
            assert not of_verifier(waiting)


def start_problems(*, width, whole=False, shared=True):
    """How many problems of so many first requests are started, each answered, one left open."""
    scheduler = new_scheduler(shared=shared)
    started = []

    def start(problem):
        started.append(problem)
        jobs = [generate(problem, child, WorkKind.EAGER) for child in range(width)]
        for job in jobs:
            job.work = Expand(job.work.node, job.work.seed, SAMPLING, whole=whole)
        scheduler.problem_started(problem, [job.work for job in jobs])
        for job in jobs:
            scheduler.add(job)

    supply = Supply(range(1000), start=start)
    for _ in range(100):
        for job in send(scheduler, supply):
            if job.work.node != (0,):
                scheduler.ended(job)
    return scheduler, started


def test_on_a_shared_device_problems_start_until_they_can_fill_the_generator():
    _, started = start_problems(width=8)
    assert len(started) == 1.5 * REQUESTS / 8


@pytest.mark.parametrize("options", [{"shared": False}, {"whole": True}])
def test_elsewhere_and_for_whole_chains_they_start_in_every_free_slot(options):
    _, started = start_problems(width=8, **options)
    assert len(started) == REQUESTS


def test_a_problem_that_ends_makes_room_for_the_next():
    scheduler, started = start_problems(width=8)
    before = len(started)
    scheduler.problem_ended(0)
    supply = Supply([1001], start=started.append)
    send(scheduler, supply)
    assert len(started) == before + 1


@pytest.mark.parametrize(("shared", "scores", "sent"), [(True, 4, 0), (True, 3, 1), (False, 4, 1)])
def test_on_a_shared_device_nothing_is_guessed_while_the_verifier_has_more_to_do(
    shared, scores, sent
):
    scheduler = new_scheduler(shared=shared)
    for load in [4, 32] * 20:  # one more request costs next to nothing
        learn(scheduler, load, 10, 10 * (1 + 1e-6 * load))
    for child in range(3):
        scheduler.add(generate(0, child))
    assert len(send(scheduler)) == 3
    for child in range(scores):
        scheduler.add(score(0, child, 500))
    assert len(send(scheduler)) == scores
    guesses = Supply(guesses=[speculative(9)])
    assert len(send(scheduler, guesses)) == sent
