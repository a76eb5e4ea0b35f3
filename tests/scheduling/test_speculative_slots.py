"""What speculation may take of the generator's slots, and when it gives them back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.scheduling.supply import (
    Supply,
    decide,
    generate,
    learn,
    of_generator,
    score,
    send,
    speculative,
)

from tts.scheduling import Policy, Scheduler, WorkKind


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
