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
from tts.scheduling.gathering import MIN_STEPS_TO_GATHER, gathering_pays, waiting_pays
from tts.search import Expand

REQUESTS, TOKENS = 64, 10000


def new_scheduler(*, one_device=True, **policy):
    return Scheduler(Policy("decoupled", REQUESTS, TOKENS, one_device=one_device, **policy))


def scoring(scheduler, count):
    """So many scores in flight."""
    for child in range(count):
        scheduler.add(score(0, 1000 + child, 400))
    sent = of_verifier(send(scheduler))
    assert len(sent) == count
    return sent


@pytest.mark.parametrize(
    ("one_device", "running", "sent"),
    [
        (True, 0, 0),
        (False, 0, 1),  # on devices of their own nothing waits
        (True, 30, 1),  # beside many others work goes at once: the generator's steps go on anyway
    ],
)
def test_the_generators_work_gathers_until_the_verifier_has_nothing_left(one_device, running, sent):
    scheduler = new_scheduler(one_device=one_device, speculation="always")
    generating(scheduler, running)
    scores = scoring(scheduler, 20)
    scheduler.add(generate(0, 40))
    assert len(send(scheduler)) == sent
    if not sent:
        assert send(scheduler, Supply(guesses=[speculative(9)])) == [], "nor is anything guessed"
        for child in range(8):
            scheduler.add(generate(0, child))
            assert send(scheduler) == []
        for job in scores:
            scheduler.end(job)
        assert len(send(scheduler)) == 9


@pytest.mark.parametrize(
    ("scores", "request_s", "sent"),
    [
        (
            MIN_STEPS_TO_GATHER - 4,
            1.0,
            False,
        ),  # a score ends every 11 ms, and each of 4 costs a part of that
        (MIN_STEPS_TO_GATHER - 4, 1000.0, True),  # one every 11 s
        (MIN_STEPS_TO_GATHER - 5, 1.0, True),
    ],
)
def test_beside_critiques_work_gathers_while_that_costs_less_than_steps_of_its_own(
    scores, request_s, sent
):
    scheduler = Scheduler(Policy("decoupled", 64, 100, one_device=True, verifier_writes=True))
    for load in [1, 4] * 20:
        learn(scheduler, load, 10, 0.5)
        learn_score(scheduler, load, request_s)
    for child in range(scores):
        scheduler.add(score(0, child, 1))
    assert len(send(scheduler)) == scores
    for child in range(4):
        scheduler.add(generate(0, child))
    assert bool(send(scheduler)) is sent


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


@pytest.mark.parametrize("known", ["nothing", "generator", "verifier", "a short step"])
def test_no_score_waits_for_longer_than_its_step_takes_or_before_that_is_known(known):
    scheduler = new_scheduler()
    if known == "a short step":
        took(scheduler, request_s=0.5, step_s=0.05)
    for _ in range(20):
        if known == "generator":
            learn(scheduler, 5, 10, 0.1)
        if known == "verifier":
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


@given(scores=st.integers(1, 300), gap_s=st.floats(1e-4, 10), step_s=st.floats(1e-4, 10))
def test_a_step_waits_until_its_scores_have_lost_what_it_costs(scores, gap_s, step_s):
    lost = sum(scores * gap_s - place * gap_s for place in range(scores))  # when the next one comes
    assume(abs(lost / step_s - 1) > 1e-6)
    assert waiting_pays(scores, gap_s, step_s) is (lost < step_s)


def test_a_score_that_everything_waits_for_goes_at_once():
    scheduler = new_scheduler(speculation="always")
    guess = speculative(9)
    assert send(scheduler, Supply(guesses=[guess])) == [guess]
    scheduler.add(score(0, 0, 1))
    assert len(send(scheduler)) == 1


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
            scheduler.end(flying.pop(rng.randrange(len(flying))))
        sent = send(scheduler)
        flying += sent
        waiting = [job for job in waiting if job not in sent]
        generating, scores = of_generator(flying), of_verifier(flying)
        if not scores:
            assert not of_generator(waiting) or len(generating) == REQUESTS
        if not generating and sum(job.tokens for job in scores) < TOKENS - 800:
            assert not of_verifier(waiting)


def start_problems(*, width, whole=False, one_device=True):
    """How many problems of so many first requests are started, each answered, one left open."""
    scheduler = new_scheduler(one_device=one_device)
    started = []

    def start(problem):
        started.append(problem)
        jobs = [generate(problem, child, WorkKind.EAGER) for child in range(width)]
        for job in jobs:
            job.work = Expand(job.work.node, job.work.seed, SAMPLING, whole=whole)
        scheduler.start_problem(problem, [job.work for job in jobs])
        for job in jobs:
            scheduler.add(job)

    supply = Supply(range(1000), start=start)
    for _ in range(100):
        for job in send(scheduler, supply):
            if job.work.node != (0,):
                scheduler.end(job)
    return scheduler, started


@pytest.mark.parametrize(
    ("options", "problems"),
    [({}, 1.5 * REQUESTS / 8), ({"one_device": False}, REQUESTS), ({"whole": True}, REQUESTS)],
)
def test_problems_start_until_they_fill_a_shared_generator_elsewhere_in_every_free_slot(
    options, problems
):
    scheduler, started = start_problems(width=8, **options)
    assert len(started) == problems
    if not options:
        scheduler.end_problem(0)
        send(scheduler, Supply([1001], start=started.append))
        assert len(started) == problems + 1, "one that ends makes room for the next"


@pytest.mark.parametrize(
    ("one_device", "scores", "sent"), [(True, 4, 0), (True, 3, 1), (False, 4, 1)]
)
def test_on_a_shared_device_nothing_is_guessed_while_the_verifier_has_more_to_do(
    one_device, scores, sent
):
    scheduler = new_scheduler(one_device=one_device)
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
