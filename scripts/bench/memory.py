"""Peak memory of runs over different numbers of problems, log and summary included.

Beam search on scripted engines that answer at once, so that the runtime is what is measured; each
run in a process of its own.

    scripts/run bench.memory                   # 1,000 and 10,000 problems, n=16: about 6 minutes
    scripts/run bench.memory --problems 100 1000

With --simulated, on one simulated GPU with both engines, without the summary: also the processor
time of orchestrator and simulation beside the time that the engines would take.

    scripts/run bench.memory --simulated h100 --problems 500 --n 256     # about 10 minutes
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from scripts.bench.orchestrator.memory import peak_mb, run
from scripts.programs import command
from tts.build.spec import Gpu
from tts.driver import Driver, policy_of
from tts.lab.simulation.fleet import SimulatedGenerator, SimulatedVerifier, fleet_of
from tts.lab.simulation.pairs import simulated_deployment
from tts.lab.simulation.scenario import Scenario, problems, search_of
from tts.lab.simulation.virtual_time import run_virtual
from tts.lab.simulation.workload import typical
from tts.problem import Problem
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.strategies.catalog import find_strategy

AIM_MB = 1000
AIM_OVERHEAD = 0.2
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
    fleet = fleet_of(deployment, 1, "time-sliced")
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


def main() -> None:
    """Measure each number of problems and print a row for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--simulated", choices=get_args(Gpu), help="on this GPU")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cells = simulated if arguments.simulated else scripted
    if arguments.one:
        print(*cells(arguments), sep="\t")
        return
    table = Table("problems", "n", *HEADINGS[cells])
    for count in arguments.problems:
        words = command("bench.memory", "--one", "--problems", count)
        words += ["--n", str(arguments.n)]
        if arguments.simulated:
            words += ["--simulated", arguments.simulated]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        table.add_row(f"{count:,}", str(arguments.n), *done.stdout.rstrip("\n").split("\t"))
    console = Console()
    console.print(table)
    if arguments.simulated:
        console.print(f"Aims: peak below {AIM_MB:,} MB, overhead below {AIM_OVERHEAD:.0%}.")


def scripted(arguments: argparse.Namespace) -> list[str]:
    """The cells of a run on scripted engines."""
    done = run(arguments.problems[0], arguments.n)
    numbers = (done.imported_mb, done.peak_mb, done.log_mb, done.cpu_s)
    return [f"{number:,.0f}" for number in numbers]


def simulated(arguments: argparse.Namespace) -> list[str]:
    """The cells of a run on a simulated GPU."""
    done = long_run(arguments.simulated, arguments.problems[0], arguments.n)
    numbers = (done.imported_mb, done.peak_mb, done.log_mb, done.cpu_s, done.engines_s)
    return [
        *(f"{number:,.0f}" for number in numbers),
        f"{done.cpu_s / done.engines_s:.1%}",
        f"{1e6 * done.cpu_s / done.thoughts:.0f}",
    ]


HEADINGS = {
    scripted: ("imported, MB", "peak, MB", "log, MB", "CPU s"),
    simulated: (
        *("imported, MB", "peak, MB", "log, MB", "CPU s"),
        *("engines s (simulated)", "overhead", "CPU us per thought"),
    ),
}


if __name__ == "__main__":
    main()
