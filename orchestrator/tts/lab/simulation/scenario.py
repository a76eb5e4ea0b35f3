"""One simulated run: a deployment's shape on a GPU, a workload, a schedule, and what came of it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import selectors
import time
from asyncio import Runner
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from tts.build.spec import Deployment, Role
from tts.driver import Driver, EndedRequest, Record, Started, Submission, UsedGuess, policy_of
from tts.engines.simulated import Affine, Sharing, StepTotals
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.replay import Recording, Script
from tts.scheduling import Prefetch, ScheduleName, SpeculationName, WorkKind
from tts.search import NodePath, Search, SearchConfig, node_seed
from tts.strategies.catalog import new_search

from .fleet import Fleet, SimulatedGenerator, SimulatedPair, SimulatedVerifier, fleet_of, router_of
from .workload import question, simulated_models


@dataclass(frozen=True)
class Scenario:
    """The simulated system, without the schedule. `in_flight` bounds the problems that run at
    once.
    """

    deployment: Deployment
    sharing: Sharing
    workload: Script
    """What the engines answer. Of a recorded run also the questions, which are else made up."""
    parameters: SearchConfig
    problems: int
    in_flight: int
    seed: int = 0
    speculation: SpeculationName = "auto"
    fits: Mapping[Role, Affine] | None = None
    """Step times fitted to measurements, instead of those of the two models on this GPU."""
    servers: int = 1
    """Each with GPUs of its own; a router gives the problems to several."""


@dataclass(frozen=True)
class SimulationOutcome:
    """A simulated run. Times are virtual except `real_s`."""

    schedule: ScheduleName
    wall_s: float
    real_s: float
    generator: StepTotals
    verifier: StepTotals
    calls_s: float
    """What the orchestrator's processor spent on calls."""
    latencies_s: tuple[float, ...]
    """Seconds from the start of each problem to its result."""
    waiting: float
    """Share of the candidates' time in which nothing is done for them: of the time from an
    iteration's first request to its last answer, what is neither the candidate's own generation nor
    its scoring."""
    speculated: int
    """Expansions sent before their search had asked for them."""
    used: int
    """How many of them it asked for in the end."""
    digest: str
    """Hash over every problem's tree; see Tree.digest."""

    @property
    def hit_rate(self) -> float | None:
        """Share of the speculative expansions that were of use; None without any."""
        return self.used / self.speculated if self.speculated else None


def simulate(scenario: Scenario, schedule: ScheduleName) -> SimulationOutcome:
    """Run the driver and the scheduler on simulated engines."""
    began = time.perf_counter()
    with _uncollected():
        return run_virtual(_run(scenario, schedule, began))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: a tenth of the time, and there is little to collect."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def problems(scenario: Scenario) -> tuple[Models, list[Problem]]:
    """The problems: the first recorded ones, or as many made-up ones."""
    if isinstance(recorded := scenario.workload, Recording):
        return recorded.models, list(recorded.problems[: scenario.problems])
    made_up = [
        Problem(f"simulated-{number}", question(number)) for number in range(scenario.problems)
    ]
    return simulated_models(scenario.deployment), made_up


def search_of(scenario: Scenario, problem: Problem) -> Search:
    """A fresh search of one problem."""

    @cache  # foresight asks for the same seeds again and again
    def seed(node: NodePath) -> int:
        return node_seed(scenario.seed, problem.id, node)

    search = new_search(scenario.parameters, seed)
    if search.tree is not None and isinstance(recorded := scenario.workload, Recording):
        search.tree.calibration = recorded.calibration
    return search


def digest_of(trees: Mapping[str, str]) -> str:
    """One hash over the digests of all problems' trees; see Tree.digest."""
    lines = [f"{name}|{trees[name]}\n" for name in sorted(trees)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(eq=False)
class _Observed:
    """The parts of a run's events and results that are kept."""

    started: dict[str, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    trees: dict[str, str] = field(default_factory=dict)
    requests: list[EndedRequest] = field(default_factory=list)
    used: int = 0

    def record(self, record: Record) -> None:
        self.used += isinstance(record, UsedGuess)
        if isinstance(record, Started):
            self.started[record.problem.id] = record.at
        elif isinstance(record, EndedRequest) and not isinstance(record.work, Prefetch):
            self.requests.append(record)

    async def solve(self, submission: Submission) -> None:
        result = await submission
        name = submission.problem.id
        self.latencies.append(asyncio.get_running_loop().time() - self.started[name])
        self.trees[name] = result.tree.digest()


async def _run(scenario: Scenario, schedule: ScheduleName, began: float) -> SimulationOutcome:
    clock = asyncio.get_running_loop().time
    fleet = fleet_of(scenario.deployment, scenario.servers, scenario.sharing, scenario.fits)
    models, to_solve = problems(scenario)
    observed = _Observed()

    def driver_of(pair: SimulatedPair) -> Driver:
        return Driver(
            models,
            SimulatedGenerator(fleet.server, pair["generator"], scenario.workload),
            SimulatedVerifier(
                fleet.server,
                pair["verifier"],
                scenario.workload,
                scenario.deployment.verifier_model,
            ),
            policy_of(
                scenario.deployment,
                schedule,
                speculation=scenario.speculation,
                problems=scenario.in_flight,
            ),
            record=observed.record,
            clock=clock,
        )

    async with AsyncExitStack() as stack:
        drivers = [await stack.enter_async_context(driver_of(pair)) for pair in fleet.pairs]
        await _solve(scenario, to_solve, fleet, drivers, observed)
    return SimulationOutcome(
        schedule,
        clock(),
        time.perf_counter() - began,
        fleet.totals("generator"),
        fleet.totals("verifier"),
        fleet.server.busy_s,
        tuple(sorted(observed.latencies)),
        _waiting(observed.requests),
        sum(request.kind is WorkKind.SPECULATIVE for request in observed.requests),
        observed.used,
        digest_of(observed.trees),
    )


async def _solve(
    scenario: Scenario,
    to_solve: Sequence[Problem],
    fleet: Fleet,
    drivers: Sequence[Driver],
    observed: _Observed,
) -> None:
    """All problems: by one driver, which queues them, or by those that a router chooses."""

    def submit(problem: Problem, driver: Driver) -> Submission:
        return driver.submit(problem, partial(search_of, scenario, problem))

    if len(drivers) == 1:
        submissions = [submit(problem, drivers[0]) for problem in to_solve]
        await asyncio.gather(*map(observed.solve, submissions))
        return
    clock = asyncio.get_running_loop().time
    router = router_of(fleet)
    queue = iter(to_solve)

    async def client() -> None:
        for problem in queue:
            replica = router.lease(clock(), problem.id)
            assert replica is not None  # simulated servers do not fail
            await observed.solve(submit(problem, drivers[int(replica.name)]))
            router.end(replica, problem.id, clock(), ok=True)

    await asyncio.gather(*(client() for _ in range(scenario.in_flight)))


def _waiting(requests: Sequence[EndedRequest]) -> float:
    iterations: dict[tuple[str, int], list[EndedRequest]] = defaultdict(list)
    for request in requests:
        iterations[request.problem, len(request.work.node)].append(request)
    own = present = 0.0
    for members in iterations.values():
        span = max(each.ended_at for each in members) - min(each.sent_at for each in members)
        present += span * len({each.work.node for each in members})
        own += sum(each.ended_at - each.sent_at for each in members)
    return 1 - own / present if present else 0.0


T = TypeVar("T")


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time, which begins at 0."""
    with Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is virtual seconds since it was made."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        """See AbstractEventLoop."""
        return self._jumps.now


class _Jumps(selectors.SelectSelector):
    """Asked to wait for input or a timeout, it lets the time pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no timer is set and no task is ready")
        self.now += max(0.0, timeout)
        return []
