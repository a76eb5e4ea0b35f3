"""The driver over scripted engines: every schedule and every timing gives the same trees."""

import asyncio
import random
from collections import Counter
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.driver.scripted_run import PROBLEMS, Run

from tts.build.errors import DatasetError, EndpointUnavailable
from tts.driver import Driver
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs import events
from tts.scheduling import ScheduleName, Scheduler
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    Fate,
    ParticleConfig,
    RebaseConfig,
    ResumedWork,
    SampleSearchConfig,
    Stop,
)

SCHEDULES = get_args(ScheduleName)
CONFIGS = [
    BeamSearchConfig(n=8, beam_width=4, num_iterations=5),
    BeamSearchConfig(n=4, beam_width=2, num_iterations=4, agg_strategy="prod"),
    SampleSearchConfig(n=4, agg_strategy="min", max_tokens=60),
    SampleSearchConfig(n=1, temperature=0.0, scored=False, max_tokens=60),
    DvtsConfig(n=6, beam_width=2, num_iterations=4),
    RebaseConfig(n=6, num_iterations=4, finish="eos", max_tokens=60),
    ParticleConfig(n=6, num_iterations=4, ess_threshold=1.0),
]


POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "speculation": st.sampled_from(["off", "always"]),
        "generator_requests": st.sampled_from([1, 3, 40]),
        "problems": st.sampled_from([1, 2]),
        "prefetch": st.booleans(),
        "shared": st.booleans(),
        "verifier_step_tokens": st.sampled_from([1, 60]),
    },
)


def same_scores(one, other):
    """Where both have one; only a pruned node may lack it in one of them."""
    for name, search in one.searches.items():
        for node in search.tree:
            twin = other.searches[name].tree[node.path]
            if node.score != twin.score:
                assert None in (node.score, twin.score)
                assert node.fate is Fate.PRUNED


@pytest.mark.parametrize("config", CONFIGS)
@settings(
    max_examples=amount(3, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(jitter=st.integers(0, 10**6), policy=POLICIES)
def test_schedules_and_timing_do_not_change_the_trees(
    tiny_deployment, words, config, jitter, policy
):
    plain = Run(tiny_deployment, words, config, "lockstep").go()
    for schedule in SCHEDULES:
        other = Run(tiny_deployment, words, config, schedule, jitter=jitter, **policy).go()
        assert other.digests == plain.digests
        assert other.completions == plain.completions
        same_scores(other, plain)
        asked = set(other.calls.generated) - other.prefetched
        assert asked >= set(plain.calls.generated)
        if policy.get("speculation") == "off":
            assert asked == set(plain.calls.generated)
        assert other.driver.in_flight == (0, 0)


def test_identical_steps_share_one_verifier_call(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIGS[0], "decoupled", jitter=3).go()
    assert max(Counter(run.calls.scored).values()) == 1
    scored = run.events_of(events.StepScored)
    fresh = [event for event in scored if not event.cached]
    cancelled = [event for event in run.events_of(events.Cancelled) if event.work == "score"]
    assert len(fresh) + len(cancelled) == len(run.calls.scored) < len(scored)
    nodes = [node for search in run.searches.values() for node in search.tree]
    assert len(scored) == sum(node.score is not None for node in nodes)


class _Peaks:
    """Counts what is in flight, and how often both engines are busy at once."""

    def __init__(self, inner, state, name):
        self.inner, self.state, self.name = inner, state, name

    async def generate(self, call):
        return await self._counted(self.inner.generate(call), 1)

    async def score(self, call):
        return await self._counted(self.inner.score(call), len(call.input_ids))

    async def _counted(self, answer, cost):
        state = self.state
        state[self.name] += cost
        state["peak", self.name] = max(state["peak", self.name], state[self.name])
        state["both"] += bool(state["generator"] and state["verifier"])
        try:
            return await answer
        finally:
            state[self.name] -= cost


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_budgets_hold_and_only_decoupled_keeps_both_engines_busy(tiny_deployment, words, schedule):
    run = Run(tiny_deployment, words, CONFIGS[0], schedule, jitter=5)
    state = Counter()
    run.generator = _Peaks(run.generator, state, "generator")
    run.verifier = _Peaks(run.verifier, state, "verifier")
    run.go()
    assert state["peak", "generator"] <= tiny_deployment.generator.in_flight_requests
    assert state["peak", "verifier"] <= tiny_deployment.verifier.in_flight_tokens
    assert (state["both"] > 0) == (schedule == "decoupled")
    assert run.driver.in_flight == (0, 0)


def test_lockstep_solves_one_problem_at_a_time(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIGS[0], "lockstep", jitter=5).go()
    order = [event.problem for event in run.events if not isinstance(event, events.Idle)]
    assert order == sorted(order)


def part_of(run, seed):
    """What a log holds of a run that was cut off: some of its thoughts and scores."""
    cut = random.Random(seed)
    resumed: dict[str, ResumedWork] = {}
    for event in run.events_of(events.StepGenerated, events.StepScored):
        if cut.random() < 0.4:
            continue
        pieces = resumed.setdefault(event.problem, ResumedWork())
        if isinstance(event, events.StepScored):
            pieces.scores[event.node] = event.score
        else:
            pieces.thoughts[event.node] = events.thoughts_of(event)
    return resumed


@pytest.mark.parametrize("config", CONFIGS)
def test_a_run_goes_on_from_any_part_of_its_log(tiny_deployment, words, config):
    whole = Run(tiny_deployment, words, config, "decoupled", jitter=1).go()
    for seed in range(5):
        resumed = part_of(whole, seed)
        again = Run(tiny_deployment, words, config, "decoupled", resumed=resumed).go()
        assert again.digests == whole.digests
        same_scores(again, whole)


def test_what_a_log_holds_is_not_computed_again(tiny_deployment, words):
    plainly = {"speculation": "off"}
    whole = Run(tiny_deployment, words, CONFIGS[0], "decoupled", jitter=1, **plainly).go()
    resumed = part_of(whole, 2)
    again = Run(tiny_deployment, words, CONFIGS[0], "decoupled", resumed=resumed, **plainly).go()
    assert again.digests == whole.digests
    kept = sum(len(pieces.thoughts) for pieces in resumed.values())
    assert len(again.calls.generated) == len(whole.calls.generated) - kept


class _Dies:
    def __init__(self, inner, after):
        self.inner, self.left = inner, after

    async def generate(self, call):
        self.left -= 1
        if self.left < 0:
            raise EndpointUnavailable("gone")
        return await self.inner.generate(call)


def test_a_lost_engine_ends_the_run_with_its_own_error(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIGS[0], "decoupled", jitter=1)
    run.generator = _Dies(run.generator, after=30)
    with pytest.raises(EndpointUnavailable, match="gone"):
        run.go()
    assert run.driver.in_flight == (0, 0)


def test_a_problem_longer_than_the_engine_is_refused_by_name(tiny_deployment):
    models = Models.load(tiny_deployment)
    with pytest.raises(DatasetError, match=r"Problem long is \d+ tokens .* max_seq_len is 320"):
        Context.of(models, Problem("long", "9" * 400))


def test_a_chain_that_fills_the_engine_ends_there(tiny_deployment, words):
    generator = tiny_deployment.generator.model_copy(update={"max_seq_len": 48})
    small = tiny_deployment.model_copy(update={"generator": generator})
    config = BeamSearchConfig(n=4, beam_width=2)
    run = Run(small, words, config, "decoupled")
    run.generator.end = 0.0
    run.go()
    stops = {node.thought.stop for search in run.searches.values() for node in search.tree}
    assert Stop.LENGTH in stops
    longest = max(len(ids) // 4 for ids, _ in run.calls.generated)
    assert longest < 48


def test_a_dialogue_longer_than_the_verifier_scores_zero(tiny_deployment, words):
    verifier = tiny_deployment.verifier.model_copy(update={"max_seq_len": 40})
    small = tiny_deployment.model_copy(update={"verifier": verifier})
    run = Run(small, words, SampleSearchConfig(n=4, agg_strategy="prod"), "decoupled")
    run.generator.end = 0.02
    run.go()
    assert all(len(ids) // 4 < 40 for ids in run.calls.scored)
    scores = [done.score for s in run.searches.values() for done in s.result().completions]
    assert 0.0 in scores


class _Released:
    """Answers each request when the test says so."""

    def __init__(self, inner):
        self.inner, self.waiting = inner, []

    async def generate(self, call):
        self.waiting.append(asyncio.Event())
        await self.waiting[-1].wait()
        return await self.inner.generate(call)


async def test_the_scheduler_learns_how_many_requests_shared_the_engine_on_average(
    tiny_deployment, words, monkeypatch
):
    """Two from 0 to 1 s and one to 3 s: the second request had 4 / 3 beside it and itself."""
    run = Run(tiny_deployment, words, SampleSearchConfig(n=2, max_tokens=30), "decoupled")
    run.generator = released = _Released(run.generator)
    now, learned = [0.0], []
    monkeypatch.setattr(Scheduler, "learn", lambda *learnt: learned.append((learnt[2], learnt[4])))

    driver = Driver(
        run.models,
        run.generator,
        run.verifier,
        run.policy,
        record=run.record,
        clock=lambda: now[0],
    )
    async with driver:
        run.driver = driver
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
    run.generator = released = _Released(run.generator)
    decide, decisions = Scheduler.overdrawn, []

    def counted(scheduler):
        decisions.append(len(released.waiting))
        return decide(scheduler)

    monkeypatch.setattr(Scheduler, "overdrawn", counted)

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
