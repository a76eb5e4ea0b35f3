"""Whatever the engines do, every schedule grows the trees of a plain client."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.driver.fault_cases import (
    DRAWN,
    EXAMPLES,
    LATE,
    SCHEDULES,
    Session,
    World,
    cases,
    check,
    check_searches,
    known,
)

from tts.prompting import Models
from tts.runs import events


@pytest.fixture(scope="module")
def models(tiny_deployment):
    return Models.load(tiny_deployment)


drawn = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("strategy", DRAWN)
@drawn
@given(data=st.data())
def test_faults_do_not_change_the_trees(models, strategy, data):
    world = World(models, data.draw(cases(strategy)))
    for schedule in SCHEDULES:
        session = Session(world, schedule)
        check(session)
        assert set(session.searches) == set(world.expected)


@pytest.mark.parametrize("strategy", DRAWN)
@drawn
@given(
    data=st.data(),
    schedule=st.sampled_from(SCHEDULES),
    role=st.sampled_from(["generator", "verifier"]),
    moment=st.floats(0, 1),
)
def test_an_engine_lost_for_good_ends_the_run_with_everything_saved(
    models, strategy, data, schedule, role, moment
):
    world = World(models, data.draw(cases(strategy)))
    answers = int(moment * world.calls_expected[role])
    dying = dataclasses.replace(getattr(world.case, role), answers=answers)
    first = Session(world, schedule, **{role: dying})
    if first.lost is None:  # it was asked less often: equal scores are asked for once
        check(first)
        assert set(first.searches) == set(world.expected)
        return

    # every answer that arrived is in the log, and nothing is in it twice
    answered = first.events_of(events.StepGenerated | events.Prefetched)
    scored = [event for event in first.events_of(events.StepScored) if not event.cached]
    late = first.generator.seen[LATE] + first.verifier.seen[LATE]
    arrived = first.generator.answered.total() + first.verifier.answered.total()
    assert arrived <= len(answered) + len(scored) <= arrived + late
    for kind in (events.StepGenerated, events.StepScored):
        nodes = Counter((event.problem, event.node) for event in first.events_of(kind))
        assert max(nodes.values(), default=1) == 1

    second = Session(world, schedule, saved=first.save())
    check(second)
    assert {*first.searches, *second.searches} == set(world.expected)
    check_searches(world, first.searches)
    for before, engine in zip(known(first), (second.generator, second.verifier), strict=True):
        assert not before & set(engine.asked), "asked for again"


@pytest.mark.parametrize("strategy", DRAWN)
@drawn
@given(
    data=st.data(),
    schedules=st.tuples(st.sampled_from(SCHEDULES), st.sampled_from(SCHEDULES)),
    cut=st.floats(0, 1),
)
def test_a_run_goes_on_from_wherever_its_log_was_cut(models, strategy, data, schedules, cut):
    world = World(models, data.draw(cases(strategy)))
    first = Session(world, schedules[0])
    saved = first.save(most=int(cut * len(first.events)))
    second = Session(world, schedules[1], saved=saved)
    check(second)
    assert {*saved.solved, *second.searches} == set(world.expected)
