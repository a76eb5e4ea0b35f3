"""A long run on simulated GPUs: memory, and processor time beside the engines' (simulated) time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tts.build.spec import Gpu
from tts.driver import Driver, policy_of
from tts.lab.simulation.fleet import ServerGroup, SimulatedGenerator, SimulatedVerifier, fleet_of
from tts.lab.simulation.pairs import simulated_deployment
from tts.lab.simulation.scenario import Scenario, problems, search_of
from tts.lab.simulation.virtual_time import run_virtual
from tts.lab.simulation.workload import typical
from tts.problem import Problem
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.strategies.catalog import find_strategy

from .memory import peak_mb

IN_FLIGHT = 64


@dataclass(frozen=True)
class LongRun:
    """What came of it. `engines_s` is virtual: what the run would take if the rest were free."""

    thoughts: int
    engines_s: float
    cpu_s: float
    imported_mb: float
    peak_mb: float
    log_mb: float


def long_run(gpu: Gpu, count: int, n: int) -> LongRun:
    """Beam search by `decoupled`, logged; a solved problem is dropped, as in every run.

    The processor time is that of the orchestrator and of the simulation, which it runs in.
    """
    return run_virtual(_run(gpu, count, n))


async def _run(gpu: Gpu, count: int, n: int) -> LongRun:
    deployment = simulated_deployment(gpu, gpus=1)
    context = deployment.generator.max_seq_len
    parameters = find_strategy("beam-search").configure({"n": n, "beam_width": 4}, context=context)
    scenario = Scenario(deployment, "time-sliced", typical(), parameters, count, IN_FLIGHT)
    fleet = fleet_of([ServerGroup(deployment)], "time-sliced", 0.0, 0.0)
    (pair,) = fleet.pairs
    models, to_solve = problems(scenario)
    clock = asyncio.get_running_loop().time
    thoughts = 0

    async def solve(problem: Problem) -> None:
        nonlocal thoughts
        solved = await driver.submit(problem, partial(search_of, scenario, problem))
        thoughts += len(solved.result.tree)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        create_run(folder, {})
        imported, began = peak_mb(), time.process_time()
        with RunLog(folder) as log:
            driver = Driver(
                models,
                SimulatedGenerator(fleet.server, pair.generators, scenario.workload),
                SimulatedVerifier(fleet.server, pair.verifiers, scenario.workload),
                policy_of(deployment, "decoupled"),
                record=log.write,
                clock=clock,
            )
            async with driver:
                await asyncio.gather(*map(solve, to_solve))
        cpu = time.process_time() - began
        log_mb = (folder / "events.jsonl").stat().st_size / 1e6
    return LongRun(thoughts, clock(), cpu, imported, peak_mb(), log_mb)
