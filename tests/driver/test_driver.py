"""The driver over scripted engines; that every timing gives the same trees is in `test_faults`."""

import asyncio
from collections import Counter
from typing import get_args

import pytest
from tests.driver.scripted_run import CONFIGS, PROBLEMS, Hooked, Run

from tts.runs import events
from tts.scheduling import ScheduleName, Scheduler
from tts.scheduling.guesses import SpareSlots
from tts.search import BeamSearchConfig, SampleSearchConfig

SCHEDULES = get_args(ScheduleName)
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
