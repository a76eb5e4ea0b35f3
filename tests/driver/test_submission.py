"""A driver takes problems at any time, and each of them ends by itself."""

import asyncio
import gc
import weakref

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.driver.scripted_run import PROBLEMS, Hooked, Run

from tts.base.errors import DatasetError, DeadlineExceeded, EndpointUnavailable, SearchError
from tts.problem import Problem
from tts.prompting import Context
from tts.runs import events
from tts.search import BeamSearchConfig, Expand, Generated, SampleSearchConfig, Scored, Search

CONFIG = BeamSearchConfig(n=8, beam_width=4, num_iterations=5)
MANY = [Problem(f"p{i}", f"Compute {i} + {i}.") for i in range(40)]


class Hangs:
    """A hook that answers so many requests and none after that; it counts what it was asked."""

    def __init__(self, answered=0):
        self.left = answered
        self.asked = self.cancelled = 0
        self.hanging = asyncio.Event()

    async def __call__(self, call, answer):
        self.asked += 1
        if self.asked <= self.left:
            return await answer(call)
        self.hanging.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


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


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ([{"priority": number % 3} for number in range(6)], "p2 p5 p1 p4 p0 p3"),
        ([{}, {"priority": 0}, {}, {"priority": 0}], "p0 p1 p2 p3"),
    ],
)
async def test_a_more_urgent_problem_starts_before_older_ones(
    tiny_deployment, words, options, order
):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=1, problems=1)
    async with run.new_driver():
        await asyncio.gather(
            *(run.submit(each, **given).outcome for each, given in zip(MANY, options, strict=False))
        )
    assert [event.problem for event in run.events_of(events.ProblemStarted)] == order.split()


ENDS = {"engine": EndpointUnavailable, "callback": ZeroDivisionError}
"""What ends a problem early; else it is cancelled, after so many turns of the loop."""


@pytest.mark.parametrize("end", [*ENDS, 0, 1, 5, 30, 80])
async def test_a_problem_that_ends_early_leaves_the_others_alone(tiny_deployment, words, end):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", jitter=7)
    whole = await Run(tiny_deployment, words, CONFIG, "decoupled").solve()
    prompt = Context.of(run.models, PROBLEMS[0]).generator_ids(()).tobytes()

    async def gone(call, answer):
        if end == "engine" and call.input_ids.tobytes().startswith(prompt):
            raise EndpointUnavailable("gone")
        return await answer(call)

    run.generator = Hooked(run.generator, gone)
    async with run.new_driver():
        doomed = run.submit(PROBLEMS[0], on_result=(lambda _: 1 / 0) if end == "callback" else None)
        others = [run.submit(problem) for problem in PROBLEMS[1:]]
        if end not in ENDS:
            await turns(end)
            doomed.cancel()
        with pytest.raises(ENDS.get(end, asyncio.CancelledError)):
            await doomed
        for submission in others:
            await submission
            run.searches[submission.problem.id] = submission.search
        assert run.driver.in_flight == (0, 0)
    assert run.digests == {k: v for k, v in whole.digests.items() if k != "p0"}


async def test_a_problem_that_comes_when_all_others_are_solved_is_solved_too(
    tiny_deployment, words
):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    async with run.new_driver():
        for problem in PROBLEMS[:3]:
            submission = run.submit(problem)
            await turns(2000)
            assert submission.done, problem


async def test_a_problem_that_is_too_long_fails_alone_and_nobody_is_warned(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    complaints = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with run.new_driver():
        run.submit(long := Problem("long", "9" * 400))
        other = run.submit(PROBLEMS[0])
        with pytest.raises(DatasetError, match="Problem long"):
            await run.submit(long)
        solved = await other
    assert solved.tree is other.search.tree
    gc.collect()
    assert complaints == []


async def test_cancelling_whoever_waits_cancels_the_search(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator = Hooked(run.generator, hangs := Hangs())
    async with run.new_driver():

        async def wait():
            await run.submit(PROBLEMS[0])

        waiting = asyncio.create_task(wait())
        await turns(5)
        assert hangs.asked == 8
        waiting.cancel()
        await asyncio.wait({waiting})
        await turns(5)
        assert hangs.cancelled == 8
        assert run.driver.in_flight == (0, 0)


async def test_leaving_the_driver_cancels_what_is_not_solved(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator = Hooked(run.generator, hangs := Hangs())
    before = asyncio.all_tasks()
    async with run.new_driver():
        submissions = [run.submit(problem) for problem in PROBLEMS]
        await turns(5)
    assert all(submission.outcome.cancelled() for submission in submissions)
    assert asyncio.all_tasks() == before
    assert hangs.asked == hangs.cancelled > 0
    assert run.driver.in_flight == (0, 0)


@pytest.mark.parametrize("at_once", [None, 1])
async def test_a_deadline_ends_a_search_whether_it_runs_or_waits(tiny_deployment, words, at_once):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", problems=at_once)
    run.generator = Hooked(run.generator, Hangs())

    async with run.new_driver():
        first = run.submit(PROBLEMS[0])
        second = run.submit(PROBLEMS[1], deadline_s=0.001)
        with pytest.raises(DeadlineExceeded, match=r"Problem p1 .* within 0\.001 s"):
            await second
        assert not first.done


async def test_a_callback_hears_every_result_once(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    heard = []
    async with run.new_driver():
        tree = (await run.submit(PROBLEMS[0], on_result=heard.append)).tree
    generated = [result.node for result in heard if isinstance(result, Generated)]
    scored = [result.node for result in heard if isinstance(result, Scored)]
    assert sorted(generated) == sorted(node.path for node in tree if node.thought)
    assert sorted(scored) == sorted(node.path for node in tree if node.score is not None)


async def test_what_is_solved_leaves_memory(tiny_deployment, words):
    """Of many problems no search outlives its caller's interest in it."""
    config = SampleSearchConfig(n=2, max_tokens=30)
    run = Run(tiny_deployment, words, config, "decoupled", problems=3)
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


@pytest.mark.parametrize("config", [SampleSearchConfig(n=8, scored=False), CONFIG])
async def test_a_search_that_is_stopped_gives_what_it_has(tiny_deployment, words, config):
    run = Run(tiny_deployment, words, config, "decoupled")
    run.generator = Hooked(run.generator, hangs := Hangs(answered=5))

    async with run.new_driver() as driver:
        waiting = run.submit(PROBLEMS[0])
        driver.stop(waiting)  # it does not run yet, so it is left alone
        assert not waiting.done
        await hangs.hanging.wait()
        await turns(50)
        driver.stop(waiting)
        solved = await waiting
        driver.stop(waiting)
        assert driver.in_flight == (0, 0)
    assert solved.limit == "deadline"
    assert len(solved.tree) >= len(solved.completions) > 0
    assert all(node.thought for node in solved.tree)


class Faulty(Search):
    """A strategy with faults: it never ends, and asks for so many steps."""

    def __init__(self, steps):
        self.steps, self.asked = steps, 0

    def ask(self):
        self.asked += self.steps
        return [Expand((self.asked,), self.asked, CONFIG.sampling)] * self.steps

    def tell(self, result):
        pass

    def result(self):
        return None

    def stop(self):
        raise ZeroDivisionError("one of the strategy's own")


async def test_a_search_that_asks_for_nothing_is_ended(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    async with run.new_driver() as driver:
        with pytest.raises(SearchError, match="problem p0 has no result and asks for nothing"):
            await driver.submit(PROBLEMS[0], lambda: Faulty(0))


async def test_those_that_wait_for_its_place_go_on(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled", problems=1)
    async with run.new_driver() as driver, asyncio.timeout(30):
        submissions = [driver.submit(problem, lambda: Faulty(0)) for problem in PROBLEMS[:2]]
        assert (await run.submit(PROBLEMS[2])).completions
        assert all(isinstance(each.outcome.exception(), SearchError) for each in submissions)


class AsksOnce(Faulty):
    """A strategy that fails when it is stopped."""

    def ask(self):
        return [] if self.asked else super().ask()


async def test_a_search_that_fails_when_it_is_stopped_ends_with_its_error(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIG, "decoupled")
    run.generator = Hooked(run.generator, Hangs())
    async with run.new_driver() as driver:
        submission = driver.submit(PROBLEMS[0], lambda: AsksOnce(1))
        await turns(3)
        driver.stop(submission)
        with pytest.raises(ZeroDivisionError):
            await submission
