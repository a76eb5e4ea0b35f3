"""Two engines on one device: gathering, and what load costs."""

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
from tts.scheduling.gathering import gathering_pays, waiting_pays
from tts.scheduling.load_curve import LoadCurve
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


def critic(*, whole=False):
    """A scheduler whose verifier writes, with one problem."""
    scheduler = Scheduler(Policy("decoupled", 64, 100, one_device=True, verifier_writes=True))
    scheduler.start_problem(0, [Expand((0,), 1, SAMPLING, whole=whole)])
    return scheduler


@pytest.mark.parametrize(
    ("request_s", "sent"),
    [
        (1.0, False),  # one of 60 ends every 17 ms: each of 4 costs a part of it
        (1000.0, True),  # one every 17 s
    ],
)
def test_beside_critiques_work_gathers_while_that_costs_less_than_steps_of_its_own(request_s, sent):
    scheduler = critic()
    for load in [1, 4] * 20:
        learn(scheduler, load, 10, 0.5)
        learn_score(scheduler, load, request_s)
    for child in range(60):
        scheduler.add(score(0, child, 1))
    assert len(send(scheduler)) == 60
    for child in range(4):
        scheduler.add(generate(0, child))
    assert bool(send(scheduler)) is sent


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("flying", [0, 1])
def test_the_first_critique_waits_while_others_are_generated_and_further_ones_join_it(
    whole, flying
):
    scheduler = critic(whole=whole)
    for child in range(flying):
        scheduler.add(score(0, child, 1))
    critiques, jobs = send(scheduler), [generate(0, child) for child in range(5)]
    for job in jobs:
        scheduler.add(job)
    gathers = whole and flying  # nothing is generated after these critiques
    assert send(scheduler) == ([] if gathers else jobs)
    scheduler.add(score(0, 9, 1))
    assert len(send(scheduler)) == flying
    for job in critiques if gathers else jobs:
        scheduler.end(job)
    assert len(send(scheduler)) == (0 if flying else 1)


def test_the_first_critique_does_not_wait_for_the_last_requests_of_a_stream():
    scheduler = critic()
    generating(scheduler, 2)
    for child in range(64):
        assert send(scheduler) == []
        scheduler.add(score(0, child, 1))
    assert len(send(scheduler)) == 64


@pytest.mark.parametrize(("writes", "running", "sent"), [(True, 0, 0), (True, 3, 1), (False, 0, 1)])
def test_beside_a_verifier_that_writes_a_guess_pays_for_the_steps_that_run_for_it_alone(
    writes, running, sent
):
    scheduler = new_scheduler(verifier_writes=writes)
    for load in [4, 32] * 20:  # one more request costs next to nothing
        learn(scheduler, load, 10, 10 * (1 + 1e-6 * load))
    generating(scheduler, running)
    assert len(send(scheduler, Supply(guesses=[speculative(9)]))) == sent


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


LOADS = [2**power for power in range(9)]

positive = st.floats(1e-3, 1e3)


def learn_from(curve, loads, step_s, each_s, *, count=20, noise=0.0, seed=0, tokens=(5, 15)):
    """Requests of random length at each load, each as slow as the others that share its steps."""
    rng = random.Random(seed)
    for load in loads:
        for _ in range(count):
            length = rng.randint(*tokens)
            took = length * (step_s + each_s * load)
            curve.add(load, length, took * rng.uniform(1 - noise, 1 + noise))
    return curve


@given(positive, positive, st.lists(st.sampled_from(LOADS), min_size=2, unique=True))
def test_share_and_seconds_are_what_the_formula_says(step_s, each_s, loads):
    curve = LoadCurve()
    assert curve.share(8) is curve.seconds(8) is None
    learn_from(curve, loads[:1], step_s, each_s, tokens=(10, 10))
    assert curve.share(8) is None, "one load tells nothing"
    seen = pytest.approx(10 * (step_s + each_s * loads[0]))
    assert curve.seconds(0) == curve.seconds(4) == curve.seconds(64) == seen
    learn_from(curve, loads[1:], step_s, each_s, tokens=(10, 10))
    for load in (0, 1, 7, 1000):
        took = 10 * (step_s + each_s * load)
        noise = 1e-6 * each_s * 10 * max(loads)
        assert curve.seconds(load) == pytest.approx(took, rel=1e-6, abs=noise)
        varied = learn_from(LoadCurve(), loads, step_s, each_s)
        assert varied.share(load) == pytest.approx(10 * each_s * load / took, rel=1e-2)


@given(positive, positive, st.integers(0, 2**32))
def test_a_noisy_engine_is_known_within_a_half_at_the_loads_that_were_seen(step_s, each_s, seed):
    curve = learn_from(LoadCurve(), LOADS, step_s, each_s, count=60, noise=0.2, seed=seed)
    for load in LOADS[4:]:
        exact = 10 * (step_s + each_s * load)
        assert exact / 1.5 < curve.seconds(load) < 1.5 * exact


@given(
    st.lists(
        st.tuples(st.floats(0.5, 5000), st.integers(0, 500), st.floats(1e-6, 1e3)), max_size=200
    )
)
def test_any_samples_give_seconds_that_are_not_negative_and_rise_with_the_load(seen):
    curve = LoadCurve()
    for load, work, seconds in seen:
        curve.add(load, work, seconds)
    found = [curve.seconds(load) for load in (0, 1, 10, 100)]
    if None not in found:
        assert found[0] >= 0
        assert found == sorted(found)


def test_an_engine_that_is_no_slower_with_more_load_has_no_limit():
    assert learn_from(LoadCurve(), [2, 8], 1.0, 0.0).share(1000) == 0.0


def test_one_slow_request_moves_little():
    curve = learn_from(LoadCurve(), LOADS, 1.0, 0.2)
    before = curve.share(16)
    curve.add(16, 10, 200.0)
    assert before / 1.5 <= curve.share(16) <= 1.5 * before


def test_a_few_samples_are_not_enough():
    curve = learn_from(LoadCurve(), LOADS, 1.0, 0.2, count=7)
    assert curve.share(8) is curve.seconds(8) is None
    learn_from(curve, LOADS, 1.0, 0.2, count=1)
    assert None not in (curve.share(8), curve.seconds(8))


def test_the_curve_follows_an_engine_that_changes():
    curve = learn_from(LoadCurve(), LOADS, 1.0, 1.0)
    assert curve.share(8) == pytest.approx(8 / 9, rel=1e-2)
    learn_from(curve, LOADS, 8.0, 1.0, count=400)
    assert curve.share(8) == pytest.approx(8 / 16, rel=1e-2)
    learn_from(curve, [16], 8.0, 1.0, count=5000)
    assert curve.share(8) is None, "loads that are no longer seen are forgotten"
