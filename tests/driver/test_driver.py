"""The driver: its pump, faults, policies, loads, expansions, searches of third parties."""

import asyncio
import dataclasses
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import get_args

import numpy as np
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
from tests.driver.scripted_run import CONFIGS, PROBLEMS, Hooked, Run
from tests.strategies.installed import install_the_example

from tts.base.choices import StartedTarget
from tts.base.errors import EndpointUnavailable
from tts.build.spec import ROLES, load_deployment
from tts.driver import policy, policy_of
from tts.driver.generation import MAX_BROKEN_STREAMS, WatchedGenerator
from tts.driver.records import IdleWatch, MeanLoad
from tts.driver.sharing import PrefixGate
from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import NewTokens, StreamingGenerator
from tts.lab.simulation.fleet import simulated_deployment
from tts.prompting import Models
from tts.runs import events
from tts.scheduling import Job, Scheduler, WorkKind
from tts.scheduling.guesses import SpareSlots
from tts.search import (
    BeamSearchConfig,
    Confidence,
    ConfidenceWatch,
    Expand,
    SampleSearchConfig,
    Score,
    Scored,
    Search,
    SearchResult,
    Tree,
)
from tts.strategies.catalog import find_strategy

CONFIG = CONFIGS[0]


def test_identical_steps_share_one_verifier_call(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=3).go()
    assert max(Counter(run.calls.scored).values()) == 1
    scored = run.events_of(events.StepScored)
    fresh = [event for event in scored if not event.cached]
    cancelled = [event for event in run.events_of(events.Cancelled) if event.work == "score"]
    assert len(fresh) + len(cancelled) == len(run.calls.scored) < len(scored)
    nodes = [node for search in run.searches.values() for node in search.tree]
    assert len(scored) == sum(node.score is not None for node in nodes)


class Equals(Search):
    """Two equal steps, of which the first one's score may be pruned, and the second's may not."""

    def __init__(self):
        self.asks = [Expand((child,), 1, CONFIG.sampling) for child in (0, 1)]
        self.scores, self.tree = 0, Tree()

    def ask(self):
        asks, self.asks = self.asks, []
        return asks

    def tell(self, answer):
        if isinstance(answer, Scored):
            self.scores += 1
        else:
            self.asks.append(Score(answer.node, may_be_pruned=answer.node == (0,)))

    def result(self):
        return SearchResult((), self.tree) if self.scores == 2 else None


async def test_a_score_that_a_node_needs_which_is_equal_to_another_goes_as_one_that_is_needed(
    tiny_deployment, words, monkeypatch
):
    needed = []
    monkeypatch.setattr(Scheduler, "require", lambda _, job: needed.append(job.work.node))
    run = Run(tiny_deployment, words, CONFIG, "decoupled", generator_requests=1)
    run.verifier = Hooked(run.verifier, released := Released())
    async with run.new_driver() as driver, asyncio.timeout(30):
        submission = driver.submit(PROBLEMS[0], Equals)
        while not needed:
            await asyncio.sleep(0)
        released.waiting[0].set()
        await submission
    assert needed == [(0,)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_budgets_hold_and_only_decoupled_keeps_both_engines_busy(tiny_deployment, words, schedule):
    run = Run(tiny_deployment, words, CONFIG, schedule, jitter=5)
    now, most, both = Counter(), Counter(), []

    def counted(engine, cost_of):
        async def count(call, answer):
            now[engine] += cost_of(call)
            most[engine] = max(most[engine], now[engine])
            both.append(now["generator"] and now["verifier"])
            try:
                return await answer(call)
            finally:
                now[engine] -= cost_of(call)

        return count

    run.generator = Hooked(run.generator, counted("generator", lambda call: 1))
    run.verifier = Hooked(run.verifier, counted("verifier", lambda call: len(call.input_ids)))
    run.go()
    assert most["generator"] <= tiny_deployment.generator.in_flight_requests
    assert most["verifier"] <= tiny_deployment.verifier.in_flight_tokens
    assert any(both) == (schedule == "decoupled")
    assert run.driver.in_flight == (0, 0)


class Released:
    """A hook that answers each request when the test says so."""

    def __init__(self):
        self.waiting = []

    async def __call__(self, call, answer):
        self.waiting.append(asyncio.Event())
        await self.waiting[-1].wait()
        return await answer(call)


async def test_the_scheduler_learns_how_many_requests_shared_the_engine_on_average(
    tiny_deployment, words, monkeypatch
):
    """Two from 0 to 1 s and one to 3 s: the second request had 4 / 3 beside it and itself."""
    run = Run(tiny_deployment, words, SampleSearchConfig(n=2, max_tokens=30), "decoupled")
    run.generator = Hooked(run.generator, released := Released())
    now, learned = [0.0], []
    monkeypatch.setattr(Scheduler, "learn", lambda *learnt: learned.append((learnt[2], learnt[4])))
    async with run.new_driver(clock=lambda: now[0]):
        submission = run.submit(PROBLEMS[0])
        while len(released.waiting) < 2:
            await asyncio.sleep(0)
        for answers, (now[0], event) in enumerate(
            zip((1.0, 3.0), released.waiting, strict=True), start=1
        ):
            event.set()
            while len(learned) < answers:
                await asyncio.sleep(0)
        await submission
    assert learned == [(pytest.approx(2.0), 1.0), (pytest.approx(4 / 3), 3.0)]


async def test_answers_that_come_together_are_seen_by_one_decision(
    tiny_deployment, words, monkeypatch
):
    run = Run(tiny_deployment, words, SampleSearchConfig(n=8, scored=False), "decoupled")
    run.generator = Hooked(run.generator, released := Released())
    decide, decisions = SpareSlots.overdrawn, []

    def counted(scheduler):
        decisions.append(len(released.waiting))
        return decide(scheduler)

    monkeypatch.setattr(SpareSlots, "overdrawn", counted)
    async with run.new_driver():
        submission = run.submit(PROBLEMS[0])
        while len(released.waiting) < 8:
            await asyncio.sleep(0)
        decisions.clear()
        for event in released.waiting:
            event.set()
        solved = await submission
    assert len(solved.completions) == 8
    assert len(decisions) <= 2, "eight answers, and perhaps the end of the problem"


def test_a_prefetched_prompt_keeps_the_slots_of_the_requests_behind_it(tiny_deployment, words):
    config = BeamSearchConfig(n=8, beam_width=2)
    run = Run(tiny_deployment, words, config, "decoupled", prefetch=True, generator_requests=8).go()
    kinds = [
        type(event).__name__
        for event in run.events_of(events.ProblemStarted, events.Prefetched, events.StepGenerated)
    ]
    second = kinds.index("ProblemStarted", 1)
    assert "StepGenerated" in kinds[:second]  # else all problems would start for one request each


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


@pytest.mark.parametrize(("gpus", "one_device"), [(1, True), (2, False)])
def test_engines_on_one_gpu_share_it(gpus, one_device):
    assert policy_of(simulated_deployment("h100", gpus), "decoupled").one_device is one_device


def test_engines_on_a_cpu_have_threads_of_their_own(tiny_deployment):
    assert tiny_deployment.target == "openvino"
    assert not policy_of(tiny_deployment, "decoupled").one_device


@pytest.mark.parametrize(
    ("name", "cores", "one_core"),
    [("demo", 1, True), ("demo", 2, False), ("demo-beside-openai", 1, False)],
)
def test_both_engines_share_the_only_core(monkeypatch, name, cores, one_core):
    monkeypatch.setattr(policy, "usable_cores", lambda: cores)
    deployment = load_deployment(name)
    assert policy_of(deployment, "decoupled").one_core is one_core


@pytest.mark.parametrize("target", ["tensorrt", "openvino", *get_args(StartedTarget), "openai"])
def test_prompts_go_ahead_where_an_engine_computes_a_prefix_once_it_is_cached(target):
    deployment = simulated_deployment("h100", 1).model_copy(update={"target": target})
    policy = policy_of(deployment, "decoupled")
    assert policy.prefetch is (target in ("tensorrt", "trtllm-serve"))


def test_a_step_of_the_verifier_is_that_of_all_its_replicas():
    deployment = simulated_deployment("h100", 1)
    verifier = deployment.verifier
    assert policy_of(deployment, "decoupled").verifier_step_tokens == verifier.max_num_tokens
    twice = verifier.tensorrt.model_copy(update={"gpus": ((0,), (1,))})
    two = verifier.model_copy(update={"tensorrt": twice})
    policy = policy_of(deployment.model_copy(update={"verifier": two}), "decoupled")
    assert policy.verifier_step_tokens == 2 * verifier.max_num_tokens


pairs = st.tuples(st.integers(0, 2), st.integers(0, 2))
states = st.lists(st.tuples(st.integers(0, 3), pairs, pairs), max_size=20)


@given(states)
def test_idle_stretches_are_the_time_in_which_nothing_was_in_flight(states):
    recorded = []
    watch = IdleWatch(recorded.append)
    now, idle, before = 0.0, dict.fromkeys(ROLES, 0.0), None
    for seconds, in_flight, pending in states:
        now += seconds
        for place, engine in enumerate(ROLES):
            if before is not None and not before[place]:
                idle[engine] += seconds
        watch.update(now, in_flight, pending)
        before = in_flight
    watch.end(now)
    for engine in ROLES:
        mine = [event for event in recorded if event.engine == engine]
        assert all(event.since < event.until for event in mine), "none is empty"
        assert sum(event.until - event.since for event in mine) == idle[engine]
        assert all(one.until <= following.since for one, following in pairwise(mine))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1))
def test_the_load_is_summed_over_time(states):
    load, now, area, before = MeanLoad(), 0.0, 0.0, 0
    for seconds, in_flight in states:
        now += seconds
        area += seconds * before
        before = in_flight
        assert load.update(now, in_flight) == pytest.approx(area)


def test_the_leader_goes_alone_and_the_others_follow_it():
    first, second, third, last = (Job(0, Score((each,)), 1, WorkKind.MAIN) for each in range(4))
    sent, leaders = [], {first, second}
    policy = SimpleNamespace(prefetch=True)
    scheduler = SimpleNamespace(policy=policy, add=sent.append, drop=lambda job: job not in sent)
    gate = PrefixGate(scheduler, leaders.__contains__)
    for job in (first, second, third):
        gate.add(job)
    assert sent == [first]
    assert not gate.drop(first), "it has been sent"
    assert gate.drop(third)
    gate.release(second)
    gate.add(third)
    assert sent == [first]
    gate.release(first)
    assert sent == [first, second], "a leader was dropped: the next one leads"
    gate.release(second)
    gate.add(last)
    assert sent == [first, second, third, last]
    policy.prefetch = False
    gate.add(first)
    gate.add(second)
    assert sent[4:] == [first, second]


CALL = GenerateCall(np.array([1, 2], np.int32), 32, 7, 0.8, 1.0, False)
LOG_PROBS = [-0.1, -0.2, -0.1, -0.4, -3.0, -3.0, -0.1, -0.1]


class BreaksOff(StreamingGenerator):
    """Gives the tokens 0, 1, 2, ...; its streams break off after so many, one after the other."""

    def __init__(self, breaks):
        self.breaks, self.waits = list(breaks), 0

    async def stream(self, call):
        if call.max_new_tokens == 1:
            self.waits += 1
            yield NewTokens([0], [-0.1], final=True)
            return
        after = self.breaks.pop(0) if self.breaks else None
        for token, log_prob in enumerate(LOG_PROBS):
            if token == after:
                raise EndpointUnavailable("The server is gone.")
            yield NewTokens([token], [log_prob], final=token == len(LOG_PROBS) - 1)


def watched(breaks, floor):
    generator = BreaksOff(breaks)
    watching = WatchedGenerator(generator, ConfidenceWatch(Confidence(2, floor)))
    return asyncio.run(watching.generate(CALL)), watching.watch, generator


@given(
    st.lists(st.integers(0, 3), max_size=MAX_BROKEN_STREAMS),
    st.sampled_from([-100.0, -1.0, -0.2]),
)
def test_a_stream_that_breaks_off_begins_anew_with_the_same_tokens_and_confidence(breaks, floor):
    ids, watch, _ = watched([], floor)
    again, same, generator = watched(breaks, floor)
    assert (again, same.weakest, same.cut) == (ids, watch.weakest, watch.cut)
    assert generator.waits == len(breaks) - len(generator.breaks)


def test_one_that_breaks_off_again_and_again_fails():
    with pytest.raises(EndpointUnavailable):
        watched([0] * (MAX_BROKEN_STREAMS + 1), -100.0)


@pytest.fixture
def shortest(monkeypatch, tmp_path):
    """The example of docs/reference/strategies.md, installed."""
    install_the_example(monkeypatch, tmp_path)
    return find_strategy("shortest")


def test_it_is_solved_under_every_schedule_with_the_same_trees(tiny_deployment, words, shortest):
    context = tiny_deployment.generator.max_seq_len
    config = shortest.configure({"n": 4, "max_tokens": 40}, context=context)
    runs = [Run(tiny_deployment, words, config, schedule, jitter=1).go() for schedule in SCHEDULES]
    plain = runs[0]
    assert set(plain.completions) == {problem.id for problem in PROBLEMS}
    for run in runs[1:]:
        assert (run.digests, run.completions) == (plain.digests, plain.completions)
    for completions in plain.completions.values():
        scores = [done.score for done in completions]
        assert len(completions) == 4
        assert scores == sorted(scores, reverse=True)
