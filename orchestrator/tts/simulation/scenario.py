"""One simulated run: a deployment's shape on a GPU, a workload, a schedule, and what came of it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.tensorrt.placement import gpus_of
from tts.driver import Driver, Submission, policy_of
from tts.engines.simulated import (
    GPUS,
    Affine,
    Engine,
    Gpu,
    ModelShape,
    PagedCache,
    Roofline,
    Sharing,
    StepTime,
    Totals,
)
from tts.problem import Problem
from tts.prompting import Models
from tts.replay import Script
from tts.runlog import events
from tts.scheduling import ScheduleName, SpeculationName
from tts.search import Search, SearchConfig, node_seed
from tts.strategies.catalog import new_search

from .pairs import shapes_of
from .server import Server, SimulatedGenerator, SimulatedVerifier
from .text import question, simulated_models
from .virtual_time import run_virtual

_Request = events.Generated | events.Scored | events.Cancelled


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run as a scenario's work."""

    models: Models
    problems: tuple[Problem, ...]
    strategy: str
    parameters: SearchConfig
    seed: int
    script: Script


@dataclass(frozen=True)
class Scenario:
    """What is simulated, but for the schedule. `in_flight` bounds the problems that run at once."""

    deployment: Deployment
    sharing: Sharing
    workload: Script
    parameters: SearchConfig
    problems: int
    in_flight: int
    seed: int = 0
    speculation: SpeculationName = "auto"
    call_s: float = 0.5e-3
    cancel_s: float = 5e-3
    recorded: RecordedRun | None = None
    """Where the workload is a recorded run; else questions are made up."""
    fits: Mapping[Role, Affine] | None = None
    """Step times fitted to measurements, instead of those of the two models on this GPU."""
    shapes: Mapping[Role, ModelShape] | None = None
    """What steps cost; None: the shapes of the checkpoints, the verifier's head cut to its labels.
    """

    @property
    def gpus(self) -> int:
        """How many GPUs the engines are on."""
        return len(gpus_of(self.deployment))


@dataclass(frozen=True)
class Outcome:
    """A simulated run. Times are virtual but for `real_s`."""

    schedule: ScheduleName
    wall_s: float
    real_s: float
    generator: Totals
    verifier: Totals
    calls_s: float
    """What the orchestrator's processor spent on calls."""
    latencies_s: tuple[float, ...]
    """From the start of each problem to its result."""
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


def simulate(scenario: Scenario, schedule: ScheduleName) -> Outcome:
    """Run the driver and the scheduler on simulated engines."""
    began = time.perf_counter()
    return run_virtual(_run(scenario, schedule, began))


def problems(scenario: Scenario) -> tuple[Models, list[Problem]]:
    """What is solved: the first recorded problems, or as many made-up ones."""
    if scenario.recorded:
        return scenario.recorded.models, list(scenario.recorded.problems[: scenario.problems])
    made_up = [
        Problem(f"simulated-{number}", question(number)) for number in range(scenario.problems)
    ]
    return simulated_models(scenario.deployment), made_up


def search_of(scenario: Scenario, problem: Problem) -> Search:
    """A fresh search of one problem."""
    return new_search(scenario.parameters, lambda node: node_seed(scenario.seed, problem.id, node))


def digest_of(trees: Mapping[str, str]) -> str:
    """One hash over the digests of all problems' trees; see Tree.digest."""
    lines = [f"{name}|{trees[name]}\n" for name in sorted(trees)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


async def _run(scenario: Scenario, schedule: ScheduleName, began: float) -> Outcome:
    clock = asyncio.get_running_loop().time
    spec = scenario.deployment
    assert spec.tensorrt is not None
    gpu = GPUS[spec.tensorrt.gpu]
    shapes = scenario.shapes or shapes_of(spec, cut=True)
    times: Mapping[Role, StepTime] = scenario.fits or {
        role: Roofline(gpu, shape) for role, shape in shapes.items()
    }
    generator = _engine(spec.generator, times["generator"])
    verifier = _engine(spec.verifier, times["verifier"])
    if scenario.gpus > 1:
        gpus = [Gpu([generator]), Gpu([verifier])]
    else:
        gpus = [Gpu([generator, verifier], scenario.sharing)]
    server = Server(gpus, scenario.call_s, scenario.cancel_s)
    models, to_solve = problems(scenario)
    started: dict[str, float] = {}
    latencies: list[float] = []
    trees: dict[str, str] = {}
    requests: list[_Request] = []
    used = 0

    def record(event: events.Event) -> None:
        nonlocal used
        used += isinstance(event, events.Used)
        if isinstance(event, events.ProblemStarted):
            started[event.problem] = event.t
        elif isinstance(event, _Request) and event.kind is not None:
            requests.append(event)

    async def solve(submission: Submission) -> None:
        solved = await submission
        name = solved.problem.id
        latencies.append(clock() - started[name])
        trees[name] = solved.result.tree.digest()

    driver = Driver(
        models,
        SimulatedGenerator(server, generator, scenario.workload),
        SimulatedVerifier(server, verifier, scenario.workload),
        policy_of(spec, schedule, speculation=scenario.speculation, problems=scenario.in_flight),
        record=record,
        clock=clock,
    )
    async with driver:
        submissions = [
            driver.submit(problem, partial(search_of, scenario, problem)) for problem in to_solve
        ]
        await asyncio.gather(*map(solve, submissions))
    return Outcome(
        schedule,
        clock(),
        time.perf_counter() - began,
        generator.totals,
        verifier.totals,
        server.busy_s,
        tuple(sorted(latencies)),
        _waiting(requests),
        sum(request.kind == "speculative" for request in requests),
        used,
        digest_of(trees),
    )


def _engine(spec: EngineSpec, step_time: StepTime) -> Engine:
    cache = spec.kv_cache
    return Engine(
        step_time,
        PagedCache(cache.blocks, cache.block_size, reuse=cache.reuse),
        spec.max_batch_size,
        spec.max_num_tokens,
    )


def _waiting(requests: Sequence[_Request]) -> float:
    iterations: dict[tuple[str, int], list[_Request]] = defaultdict(list)
    for request in requests:
        iterations[request.problem, len(request.node)].append(request)
    own = present = 0.0
    for members in iterations.values():
        span = max(each.done for each in members) - min(each.sent for each in members)
        present += span * len({each.node for each in members})
        own += sum(each.done - each.sent for each in members)
    return 1 - own / present if present else 0.0
