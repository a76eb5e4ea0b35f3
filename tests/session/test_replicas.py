"""Several servers: problems that move, results that stay the same, replicas that come and go."""

import asyncio
import warnings
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.session.servers import FakeServer

from tts.base.errors import EndpointUnavailable, RequestRefused, ServerError
from tts.driver import Driver, policy_of
from tts.endpoints.retry import PATIENCE_S
from tts.fleet import replicas as replicas_module
from tts.fleet.drivers import Drivers
from tts.fleet.engines import Engines
from tts.fleet.replicas import Attempts, Replicas
from tts.grading import Outcome, Reason, Verdict
from tts.lab.simulation.scenario import run_virtual
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.config import RunConfig
from tts.runs.events import Idle, ProblemSolved, ProblemStarted, StepGenerated, StepScored
from tts.runs.folder import create_run
from tts.runs.log import RunLog, read_events
from tts.search import BeamSearchConfig
from tts.session.plan import Plan
from tts.session.questions import in_turn
from tts.session.solver import Solver
from tts.session.strategy import choose

PROBLEMS = [Problem(str(number), f"Compute {number} + 1.", "4") for number in range(8)]
OUTAGES = st.lists(
    st.tuples(st.floats(0, 4), st.floats(0.05, 4)).map(lambda o: (o[0], o[0] + o[1])), max_size=3
)


class SameText:
    async def equal(self, prediction, reference):
        same = Outcome.EQUAL if prediction == reference else Outcome.DIFFERENT
        return Verdict(same, Reason.FUNCTION)


@asynccontextmanager
async def opened(*servers, **options):
    """Replicas of these servers, and others that may be added by name."""
    others = {server.name: server for server in servers}

    async def connect(address):
        pair = others[address].pair()
        await pair.probe()
        return pair

    async with Replicas(connect, **options) as replicas:
        replicas.others = others
        for server in servers:
            replicas.use(server.pair())
        yield replicas


async def solved(
    deployment,
    replicas,
    problems=PROBLEMS,
    log=None,
    on_step=None,
    at_a_time=None,
    on_server=lambda name: None,
    **policy,
):
    """The results of a run on replicas, by problem."""
    strategy = choose(BeamSearchConfig(n=4), deployment, {})
    asked = RunConfig(seed=1)
    plan = Plan(asked, deployment, (), strategy, on_step=on_step, on_server=on_server)
    results = []
    scheduling = policy_of(deployment, "decoupled", problems=at_a_time, **policy)
    async with Drivers(Models.load(deployment), replicas, scheduling, log) as drivers:
        with Solver(plan, drivers, SameText()) as solver:
            await solver.solve_all(in_turn(problems), results.append)
    by_problem = {result.problem.id: result for result in results}
    assert len(by_problem) == len(results)
    return by_problem


def solved_on(deployment, *servers, patience_s=10, **options):
    """The results of a run on replicas of its own, by problem."""

    async def go():
        async with opened(*servers, patience_s=patience_s) as replicas:
            return await solved(deployment, replicas, **options)

    return run_virtual(go())


def digests(results):
    return {name: result.tree_digest for name, result in results.items()}


@pytest.fixture(scope="module")
def expected(tiny_deployment, words):
    return solved_on(tiny_deployment, FakeServer("alone", words))


@settings(max_examples=25)
@given(
    outages=st.lists(OUTAGES, min_size=2, max_size=3),
    speculation=st.sampled_from(["auto", "always"]),
)
def test_whatever_dies_and_comes_back_the_results_are_the_same_and_nothing_counts_twice(
    tiny_deployment, words, expected, tmp_path_factory, outages, speculation
):
    folder = tmp_path_factory.mktemp("run") / "run"
    steps = []
    servers = [
        FakeServer(f"s{place}", words, down, restarts=True) for place, down in enumerate(outages)
    ]
    create_run(folder, {})
    with RunLog(folder) as log:
        options = {"log": log, "on_step": steps.append, "speculation": speculation}
        results = solved_on(tiny_deployment, *servers, patience_s=PATIENCE_S, **options)
    assert digests(results) == digests(expected)
    events = list(read_events(folder))
    starts = [event.problem for event in events if isinstance(event, ProblemStarted)]
    ends = [event.problem for event in events if isinstance(event, ProblemSolved)]
    assert sorted(starts) == sorted(ends) == sorted(expected)
    written = [(e.problem, e.node) for e in events if isinstance(e, StepGenerated)]
    scored = [(e.problem, e.node) for e in events if isinstance(e, StepScored)]
    assert len(set(written)) == len(written)
    assert len(set(scored)) == len(scored)
    for name, result in results.items():
        mine = [
            e for e in events if isinstance(e, StepGenerated | StepScored) and e.problem == name
        ]
        usage = result.usage
        assert usage.generated_tokens == sum(e.tokens for e in mine if isinstance(e, StepGenerated))
        assert usage.verifier_calls == sum(isinstance(e, StepScored) and not e.cached for e in mine)
    told = [(step.problem.id, step.node, step.score is None) for step in steps]
    assert len(set(told)) == len(told)


def test_problems_go_to_the_server_that_starts_them_and_every_request_says_which(
    tiny_deployment, words, expected, tmp_path
):
    fast, slow = FakeServer("fast", words, slowness_s=0.01), FakeServer("slow", words, slowness_s=1)
    problems = [Problem(f"q{number}", f"Compute {number} + 2.", "4") for number in range(40)]
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        solved_on(tiny_deployment, fast, slow, problems=problems, log=log, at_a_time=4)
    assert fast.answered > 2 * slow.answered
    requests = [e for e in read_events(tmp_path) if isinstance(e, StepGenerated)]
    by_server = {name: sum(e.server == name for e in requests) for name in ("fast", "slow")}
    assert by_server == {
        "fast": len(fast.generator.calls.generated),
        "slow": len(slow.generator.calls.generated),
    }
    servers_of = {
        problem.id: {e.server for e in requests if e.problem == problem.id} for problem in problems
    }
    assert all(len(servers) == 1 for servers in servers_of.values())
    assert {e.server for e in read_events(tmp_path) if isinstance(e, Idle)} <= {"fast", "slow"}


@pytest.mark.parametrize("at_a_time", [3, 4, 5])
def test_servers_together_run_no_more_problems_at_a_time_than_may(
    tiny_deployment, words, tmp_path, at_a_time
):
    servers = [FakeServer(f"s{place}", words) for place in range(3)]
    problems = [Problem(f"q{number}", f"Compute {number} + 2.", "4") for number in range(20)]
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        solved_on(tiny_deployment, *servers, problems=problems, log=log, at_a_time=at_a_time)
    events = [e for e in read_events(tmp_path) if isinstance(e, ProblemStarted | StepScored)]
    ends = {event.problem: place for place, event in enumerate(events)}
    starts = [place for place, event in enumerate(events) if isinstance(event, ProblemStarted)]
    running = [
        sum(each <= start for each in starts) - sum(e < start for e in ends.values())
        for start in starts
    ]
    assert max(running) == at_a_time


@pytest.mark.parametrize("is_here", [True, False])
def test_engines_share_the_only_core_of_the_machine_that_they_are_on(
    tiny_deployment, words, monkeypatch, is_here
):
    policies = []

    class Recorded(Driver):
        def __init__(self, models, generator, verifier, policy, **options):
            policies.append(policy)
            super().__init__(models, generator, verifier, policy, **options)

    monkeypatch.setattr("tts.fleet.drivers.Driver", Recorded)
    monkeypatch.setattr("tts.driver.policy.usable_cores", lambda: 1)
    server = FakeServer("s", words)
    pair = server.pair()
    pair.is_here = is_here
    monkeypatch.setattr(server, "pair", lambda: pair)
    solved_on(tiny_deployment, server)
    assert [policy.one_core for policy in policies] == [is_here]


def test_a_server_that_comes_back_is_used_again(tiny_deployment, words, expected):
    down = FakeServer("down", words, [(0.0, 3.0)])
    up = FakeServer("up", words)

    async def go():
        async with opened(down, up) as replicas:
            first = await solved(tiny_deployment, replicas)
            assert down.answered == 0
            await asyncio.sleep(40)
            await solved(tiny_deployment, replicas)
            return first

    assert digests(run_virtual(go())) == digests(expected)
    assert down.answered > 0


def test_when_no_server_is_left_the_run_ends_with_every_reason(tiny_deployment, words):
    servers = [FakeServer(name, words, [(0.3, 1e9)]) for name in ("one", "two")]
    with pytest.raises(EndpointUnavailable) as failure:
        solved_on(tiny_deployment, *servers)
    assert "one: one " in failure.value.hint
    assert "two: two " in failure.value.hint
    with pytest.raises(EndpointUnavailable, match=r"^one is gone$"):  # as without replicas
        solved_on(tiny_deployment, servers[0])


def test_while_a_server_is_being_started_again_it_is_waited_for(tiny_deployment, words, expected):
    servers = [FakeServer(name, words, [(0.3, 500.0)], restarts=True) for name in ("one", "two")]
    assert digests(solved_on(tiny_deployment, *servers)) == digests(expected)


def test_a_server_known_to_be_dead_gives_its_problems_away_at_once(
    tiny_deployment, words, expected
):
    dead, well = FakeServer("dead", words, slowness_s=1e6), FakeServer("well", words)

    def check():
        if asyncio.get_running_loop().time() > 1:
            raise ServerError("its process died")

    async def go():
        async with opened() as replicas:
            pair = dead.pair()
            pair.check = check
            dead.outages = [(1.0, 1e9)]
            replicas.use(pair)
            replicas.use(well.pair())
            results = await solved(tiny_deployment, replicas)
            assert asyncio.get_running_loop().time() < 100
            return results

    assert digests(run_virtual(go())) == digests(expected)


def test_it_is_told_which_server_a_search_goes_to_and_where_it_moves(
    tiny_deployment, words, expected
):
    dying = FakeServer("dying", words, [(0.2, 1e9)])
    other = FakeServer("other", words)
    told = []

    async def go():
        async with opened(dying) as replicas:
            asyncio.get_running_loop().call_later(0.1, replicas.use, other.pair())
            return await solved(tiny_deployment, replicas, PROBLEMS[:1], on_server=told.append)

    results = run_virtual(go())
    assert digests(results) == {"0": expected["0"].tree_digest}
    assert list(dict.fromkeys(told)) == ["dying", "other"]
    assert told[-1] == "other"


def test_a_problem_that_fails_everywhere_ends_the_run(tiny_deployment, words):
    asked = []

    class Poisoned(FakeServer):
        async def generate(self, call):
            asked.append(self.name)
            raise EndpointUnavailable("the engine failed")

    servers = [Poisoned(name, words) for name in ("one", "two")]
    with pytest.raises(EndpointUnavailable, match="the engine failed"):
        solved_on(tiny_deployment, *servers, problems=PROBLEMS[:1])
    assert {*asked} == {"one", "two"}


def test_what_a_server_refuses_is_not_sent_to_another(tiny_deployment, words):
    class Refusing(FakeServer):
        async def generate(self, call):
            self.answered += 1
            raise RequestRefused("too long")

    servers = [Refusing(name, words) for name in ("one", "two")]

    async def go():
        async with opened(*servers) as replicas:
            with pytest.raises(RequestRefused):
                await replicas.call(lambda pair: pair.generator.generate(None))
            assert all(each.circuit.state(0) == "closed" for each in replicas.router.replicas)

    run_virtual(go())
    assert sum(server.answered for server in servers) == 1


def test_a_request_for_which_no_server_works_says_so(words):
    async def go():
        async with opened(FakeServer("one", words), patience_s=5) as replicas:
            (pair,) = replicas.pairs
            replicas.enable_failover()
            pair.probe = partial(refuse, "not there")
            replicas.mark_down(pair, EndpointUnavailable("gone"))
            began = asyncio.get_running_loop().time()
            with pytest.raises(EndpointUnavailable, match="not there"):
                await replicas.call(lambda pair: pair.generator.generate(None))
            return asyncio.get_running_loop().time() - began

    async def refuse(why):
        raise EndpointUnavailable(why)

    assert 5 < run_virtual(go()) <= 5 + 2 * replicas_module.CHECK_S


async def fail_until_given_up(attempts, asked, achieved):
    """Add the name of each replica that is asked; the first attempts achieve something."""
    while True:
        async with attempts.next() as pair:
            asked.append(pair.name)
            if len(asked) <= achieved:
                attempts.reset()
            raise EndpointUnavailable("gone")


@pytest.mark.parametrize(("names", "most", "achieved"), [("abc", 7, 0), ("ab", 2, 4)])
def test_work_that_fails_goes_round_all_servers_as_often_as_it_may(words, names, most, achieved):
    """What was achieved makes failures count anew."""

    async def go():
        async with opened(*(FakeServer(name, words) for name in names)) as replicas:
            asked = []
            with pytest.raises(EndpointUnavailable):
                await fail_until_given_up(Attempts(replicas, most=lambda: most), asked, achieved)
            return asked

    asked = run_virtual(go())
    assert len(asked) == most + achieved
    assert {*asked[: len(names)]} == {*names}
    assert all(one != following for one, following in pairwise(asked))


def test_a_request_is_repeated_elsewhere_and_a_conversation_stays(words):
    one, two = FakeServer("one", words), FakeServer("two", words)

    async def go():
        async with opened(one, two) as replicas:
            asked = []

            async def ask(pair):
                asked.append(pair.name)
                await asyncio.sleep(0)
                if {"one": one, "two": two}[pair.name].is_down():
                    raise EndpointUnavailable("gone")
                return pair.name

            home = await replicas.call(ask, "talk")
            assert await replicas.call(ask, "talk") == home
            {"one": one, "two": two}[home].outages = [(0, 1e9)]
            other = await replicas.call(ask, "talk")
            assert other != home
            assert await replicas.call(ask, "talk") == other
            assert asked == [home, home, home, other, other]

    run_virtual(go())


def test_replicas_are_added_drained_and_removed_while_work_goes_on(
    tiny_deployment, words, expected
):
    first, second = FakeServer("first", words), FakeServer("second", words)

    async def go():
        async with opened(first) as replicas:
            replicas.enable_failover()
            replicas.others["second"] = second
            running = asyncio.ensure_future(solved(tiny_deployment, replicas, at_a_time=2))
            await asyncio.sleep(0.5)
            await replicas.add("second")
            with pytest.raises(ValueError, match="second"):
                await replicas.add("second")
            await replicas.remove("first")
            assert not running.done()
            assert [pair.name for pair in replicas.pairs] == ["second"]
            return await running

    assert digests(run_virtual(go())) == digests(expected)
    assert first.answered > 0
    assert second.answered > 0


def test_nothing_is_left_running(words):
    async def go():
        async with opened(FakeServer("one", words), FakeServer("two", words)):
            await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_virtual(go())


def test_no_request_tries_whether_a_server_is_back(words, monkeypatch):
    """The watch does, at nobody's cost."""
    monkeypatch.setattr(replicas_module, "CHECK_S", 100.0)

    async def scene():
        async with opened(
            FakeServer("a", words), FakeServer("b", words), patience_s=1000.0
        ) as replicas:
            await asyncio.sleep(1)  # the watch has looked
            for pair in replicas.pairs:
                replicas.mark_down(pair, EndpointUnavailable("gone"))
            await asyncio.sleep(60)  # both could be tried
            async with replicas.lease(avoid={"a"}):
                return asyncio.get_running_loop().time()

    assert run_virtual(scene()) >= 100


@pytest.mark.parametrize("refused", [0, 2, 4, 5])
def test_caches_are_reset_once_cancelled_requests_have_left(tiny_deployment, words, refused):
    answers = [False] * refused + [True]

    class Caches:
        async def reset_prefix_caches(self):
            return answers.pop(0)

    async def go():
        async with opened(FakeServer("one", words)) as replicas:
            replicas.pairs[0].connection = Caches()
            models = Models.load(tiny_deployment)
            engines = Engines(models, (None, None), None, replicas)
            return await engines.reset_prefix_caches()

    assert run_virtual(go()) == (refused < 5)
    assert len(answers) == (refused == 5)
