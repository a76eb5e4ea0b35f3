"""A driver takes problems at any time, and each of them ends by itself."""

import asyncio
import gc
import weakref

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.driver.scripted_run import PROBLEMS, Run

from tts.build.errors import DatasetError, DeadlineExceeded, EndpointUnavailable, SearchError
from tts.driver import problem_run
from tts.problem import Problem
from tts.prompting import Context
from tts.runs import events
from tts.search import BeamSearchConfig, Expand, Generated, SampleSearchConfig, Scored, Search

CONFIG = BeamSearchConfig(n=8, beam_width=4, num_iterations=5)
MANY = [Problem(f"p{i}", f"Compute {i} + {i}.") for i in range(40)]


class Hangs:
    """Answers nothing until it is cancelled, and counts what it was asked."""

    def __init__(self):
        self.asked = self.cancelled = 0

    async def generate(self, call):
        self.asked += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class FailsFor:
    """Fails every request whose prompt begins with these ids; the others go to `inner`."""

    def __init__(self, inner, prompt):
        self.inner, self.prompt = inner, prompt.tobytes()

    async def generate(self, call):
        if call.input_ids.tobytes().startswith(self.prompt):
            raise EndpointUnavailable("gone")
        return await self.inner.generate(call)


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    arrivals=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    priorities=st.lists(st.integers(-1, 2), min_size=4, max_size=4),
    jitter=st.integers(0, 10**6),
)
async def test_when_and_how_urgently_problems_come_does_not_change_their_trees(
    tiny_deployment, words, arrivals, priorities, jitter
):
    together = await Run(tiny_deployment, words, CONFIG, "lockstep").solve()
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=jitter)

    async def arrive(problem, after, priority):
        await turns(after)
        submission = run.submit(problem, priority=priority)
        await submission
        run.searches[problem.id] = submission.search

    async with run.new_driver():
        await asyncio.gather(*map(arrive, PROBLEMS, arrivals, priorities))
    assert run.digests == together.digests
    assert run.driver.in_flight == (0, 0)


async def test_a_more_urgent_problem_starts_before_older_ones(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=1, problems=1)

    async with run.new_driver():
        await asyncio.gather(
            *(run.submit(each, priority=number % 3).outcome for number, each in enumerate(MANY[:6]))
        )
    started = [event.problem for event in run.events_of(events.ProblemStarted)]
    assert started == ["p2", "p5", "p1", "p4", "p0", "p3"]


async def test_a_problem_without_a_priority_has_that_of_the_others(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=1, problems=1)

    async with run.new_driver():
        options = [{}, {"priority": 0}] * 2
        await asyncio.gather(
            *(run.submit(each, **given).outcome for each, given in zip(MANY, options, strict=False))
        )
    started = [event.problem for event in run.events_of(events.ProblemStarted)]
    assert started == ["p0", "p1", "p2", "p3"]


async def test_a_failing_problem_leaves_the_others_alone(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=3)
    whole = await Run(tiny_deployment, words, CONFIG, "decoupled").solve()

    bad = Context.of(run.models, PROBLEMS[1])
    run.generator = FailsFor(run.generator, bad.prompt)
    async with run.new_driver():
        submissions = [run.submit(problem) for problem in PROBLEMS]
        outcomes = await asyncio.gather(*submissions, return_exceptions=True)
    assert isinstance(outcomes.pop(1), EndpointUnavailable)
    del submissions[1]
    assert {each.problem.id: each.search.tree.digest() for each in submissions} == {
        name: digest for name, digest in whole.digests.items() if name != "p1"
    }
    assert run.driver.in_flight == (0, 0)


async def test_a_problem_that_comes_when_all_others_are_solved_is_solved_too(
    tiny_deployment, words
):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")

    async with run.new_driver():
        for problem in PROBLEMS[:3]:
            submission = run.submit(problem)
            await turns(2000)
            assert submission.done, problem


async def test_nobody_is_warned_of_a_failure_that_is_not_awaited(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    complaints = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with run.new_driver():
        await asyncio.wait([run.submit(Problem("long", "9" * 400)).outcome])
    gc.collect()
    assert complaints == []


async def test_a_problem_that_is_too_long_fails_alone_and_by_name(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")

    async with run.new_driver():
        submissions = [run.submit(Problem("long", "9" * 400)), run.submit(PROBLEMS[0])]
        long, solved = await asyncio.gather(*submissions, return_exceptions=True)
    assert isinstance(long, DatasetError)
    assert "Problem long" in str(long)
    assert solved.tree is submissions[1].search.tree


@pytest.mark.parametrize("moment", [0, 1, 5, 30, 80])
async def test_a_cancelled_problem_leaves_nothing_on_the_engines(tiny_deployment, words, moment):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=7)
    whole = await Run(tiny_deployment, words, CONFIG, "decoupled").solve()

    async with run.new_driver():
        doomed, *others = [run.submit(problem) for problem in PROBLEMS]
        await turns(moment)
        doomed.cancel()
        for submission in others:
            await submission
            run.searches[submission.problem.id] = submission.search
        with pytest.raises(asyncio.CancelledError):
            await doomed
        assert run.driver.in_flight == (0, 0)
    assert run.digests == {k: v for k, v in whole.digests.items() if k != "p0"}


async def test_cancelling_whoever_waits_cancels_the_search(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator = Hangs()

    async with run.new_driver():

        async def wait():
            await run.submit(PROBLEMS[0])

        waiting = asyncio.create_task(wait())
        await turns(5)
        assert run.generator.asked == 8
        waiting.cancel()
        await asyncio.wait({waiting})
        await turns(5)
        assert run.generator.cancelled == 8
        assert run.driver.in_flight == (0, 0)


async def test_leaving_the_driver_cancels_what_is_not_solved(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator, before = Hangs(), asyncio.all_tasks()

    async with run.new_driver():
        submissions = [run.submit(problem) for problem in PROBLEMS]
        await turns(5)
    assert all(submission.outcome.cancelled() for submission in submissions)
    assert asyncio.all_tasks() == before
    assert run.generator.asked == run.generator.cancelled > 0
    assert run.driver.in_flight == (0, 0)


@pytest.mark.parametrize("at_once", [None, 1])
async def test_a_deadline_ends_a_search_whether_it_runs_or_waits(tiny_deployment, words, at_once):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", problems=at_once)
    run.generator = Hangs()

    async with run.new_driver():
        first = run.submit(PROBLEMS[0])
        second = run.submit(PROBLEMS[1], deadline_s=0.001)
        with pytest.raises(DeadlineExceeded, match=r"Problem p1 .* within 0\.001 s"):
            await second
        assert not first.done


class AsksForNothing(Search):
    """A strategy with a fault."""

    def ask(self):
        return []

    def tell(self, result):
        pass

    def result(self):
        return None


async def test_a_search_that_asks_for_nothing_is_ended_with_its_name(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")

    async with run.new_driver() as driver:
        with pytest.raises(SearchError, match=r"problem p0 \(AsksForNothing\)"):
            await driver.submit(PROBLEMS[0], AsksForNothing)


async def test_a_callback_that_fails_ends_its_own_problem_only(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")

    def fail(_):
        raise ZeroDivisionError("in the callback")

    async with run.new_driver():
        submissions = [run.submit(PROBLEMS[0], on_result=fail), run.submit(PROBLEMS[1])]
        failed, solved = await asyncio.gather(*submissions, return_exceptions=True)
    assert isinstance(failed, ZeroDivisionError)
    assert solved.tree is submissions[1].search.tree


def test_a_callback_hears_every_result_once(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    heard = []

    async def solve():
        async with run.new_driver():
            return await run.submit(PROBLEMS[0], on_result=heard.append)

    tree = asyncio.run(solve()).tree
    generated = [result.node for result in heard if isinstance(result, Generated)]
    scored = [result.node for result in heard if isinstance(result, Scored)]
    assert sorted(generated) == sorted(node.path for node in tree if node.thought)
    assert sorted(scored) == sorted(node.path for node in tree if node.score is not None)


async def test_what_is_solved_leaves_memory(tiny_deployment, words):
    """Of many problems no search outlives its caller's interest in it."""
    run = Run(
        tiny_deployment, words, SampleSearchConfig(n=2, max_tokens=30), "decoupled", problems=3
    )
    alive, most = weakref.WeakSet(), 0

    async with run.new_driver():

        async def one(problem):
            nonlocal most
            submission = run.submit(problem)
            await submission
            alive.add(submission.search)
            most = max(most, len(alive))

        await asyncio.gather(*map(one, MANY))
        gc.collect()
        assert len(alive) == 0
    assert most < 20


class AnswersFirst:
    """Answers so many requests, and hangs from then on; `hanging` is set by the first."""

    def __init__(self, inner, answered):
        self.inner, self.left = inner, answered
        self.hanging = asyncio.Event()

    async def generate(self, call):
        self.left -= 1
        if self.left >= 0:
            return await self.inner.generate(call)
        self.hanging.set()
        return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("config", [SampleSearchConfig(n=8, scored=False), CONFIG])
async def test_a_search_that_is_stopped_gives_what_it_has(tiny_deployment, words, config):
    run = Run(tiny_deployment, words, config, "decoupled")
    run.generator = AnswersFirst(run.generator, 5)

    async with run.new_driver() as driver:
        waiting = run.submit(PROBLEMS[0])
        driver.stop(waiting)  # it does not run yet, so it is left alone
        assert not waiting.done
        await run.generator.hanging.wait()
        await turns(50)
        driver.stop(waiting)
        solved = await waiting
        driver.stop(waiting)
        assert driver.in_flight == (0, 0)
    assert solved.limit == "deadline"
    assert len(solved.tree) >= len(solved.completions) > 0
    assert all(node.thought for node in solved.tree)


class FailsToStop(AsksForNothing):
    """Another strategy with a fault."""

    def __init__(self):
        self.asks = [Expand((0,), 0, CONFIG.sampling)]

    def ask(self):
        asks, self.asks = self.asks, []
        return asks

    def stop(self):
        raise ZeroDivisionError("one of the strategy's own")


async def test_a_search_that_fails_when_it_is_stopped_ends_with_its_error(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator = Hangs()
    run.new_search = lambda problem: FailsToStop()

    async with run.new_driver() as driver:
        submission = run.submit(PROBLEMS[0])
        await turns(3)
        driver.stop(submission)
        with pytest.raises(ZeroDivisionError):
            await submission


class AsksForEver(AsksForNothing):
    """A strategy that comes to no end."""

    asked = 0

    def ask(self):
        self.asked += 1
        return [Expand((self.asked,), self.asked, CONFIG.sampling)]


async def test_a_search_that_asks_for_ever_is_ended(tiny_deployment, words, monkeypatch):
    monkeypatch.setattr(problem_run, "MAX_EXPANSIONS", 50)
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.new_search = lambda problem: AsksForEver()
    async with run.new_driver():
        with pytest.raises(SearchError, match="has asked for 50 steps and goes on"):
            await run.submit(PROBLEMS[0])
