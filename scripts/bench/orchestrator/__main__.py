"""CPU time per thought of the orchestrator.

Without options: of everything but gRPC and the engines (search, scheduler, token ids, log). Runs
every strategy on the demo problems with scripted engines that answer at once, and then each search
core again, alone, on what the engines answered.

    scripts/run bench.orchestrator --problems 100
    scripts/run bench.orchestrator --strategy beam-search --profile

With --instant, of everything but the engines: beam search on a real Triton server whose models
answer at once. The orchestrator has one core, the server the others; thoughts per second are those
of that one core, and bounded by the server, too.

    scripts/run bench.orchestrator --instant --problems 100 --rounds 5

With --server, beam search runs on the demo pair's real server instead: CPU time per thought of each
process, under both schedules, a server of its own for each.

    scripts/run bench.orchestrator --server --problems 40

With --scale, whole runs in a folder on scripted engines, from 10 problems to so many at n=16, and
from n=4 to n=1024: CPU time per thought and peak memory, each run in a process of its own, also as
a plot. The least of --rounds counts; 10,000 problems are solved once. About 5 minutes. Instructions
per thought are nearly the same on a busy machine, where CPU times may be twice as long.

    scripts/run bench.orchestrator --scale --problems 10000 --plot docs/figures/scale.svg
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from scripts.bench.common import cpu_s, process_of, thoughts_of
from scripts.bench.orchestrator import instant, scale, scripted
from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.engines import wire
from tts.lab.bench.single_run import run_bench
from tts.lab.observer import Observer
from tts.runs import events
from tts.runs.config import RunConfig
from tts.runs.log import read_events
from tts.scheduling import ScheduleName
from tts.search import SearchConfig
from tts.serving.server.start import RunningServer, start_server
from tts.strategies.catalog import STRATEGIES, find_strategy


def by_process(problems: int, n: int) -> Table:
    """CPU ms per thought of every process that takes part in a run on a server."""
    deployment = load_deployment("demo")
    build_engines(deployment, say=lambda line: None)
    names = ["orchestrator", "tritonserver", wire.GENERATOR, wire.PRM]
    table = Table("schedule", "wall s", "thoughts", *names, "all")
    schedules: tuple[ScheduleName, ...] = ("lockstep", "decoupled")
    for schedule in schedules:
        with tempfile.TemporaryDirectory() as folder, start_server(deployment) as server:
            processes = [psutil.Process(), *server_processes(server, names[2:])]

            _bench(Path(folder, "first"), schedule, n, 1, seed=1)  # imports, what is made once
            before, started = [cpu_s([each]) for each in processes], time.perf_counter()
            run = _bench(Path(folder, "measured"), schedule, n, problems, seed=0)
            wall = time.perf_counter() - started
            spent = [cpu_s([each]) - was for each, was in zip(processes, before, strict=True)]
            log = list(read_events(run))
        thoughts = sum(len(e.thoughts) for e in log if isinstance(e, events.Generated))
        cells = [f"{1000 * each / thoughts:.2f}" for each in (*spent, sum(spent))]
        table.add_row(schedule, f"{wall:.1f}", f"{thoughts:,}", *cells)
    return table


def _bench(out: Path, schedule: ScheduleName, n: int, problems: int, *, seed: int) -> Path:
    asked = RunConfig(
        deployment_source="demo",
        dataset="demo",
        limit=problems,
        seed=seed,
        schedule=schedule,
        parameters={"n": n, "beam_width": 4},
    )
    return run_bench(asked, out, Observer())


def server_processes(server: RunningServer, models: Sequence[str]) -> list[psutil.Process]:
    """The tritonserver process and the stubs of these models."""
    root = process_of(server)
    stubs: dict[str, psutil.Process] = {}
    for child in root.children(recursive=True):
        words = " ".join(child.cmdline())
        stubs |= {model: child for model in models if f"/{model}/1/model.py" in words}
    return [root, *(stubs[model] for model in models)]


AIM_RATE = 1500
AIM_DEMO_MS = 0.5
AIM_ALONE_US = 100


def main() -> None:
    """Measure what the command line asks for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3, help="of --instant and --scale")
    parser.add_argument("--strategy", choices=STRATEGIES, help="only this one")
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--instant", action="store_true", help="a server of models without work")
    what.add_argument("--server", action="store_true", help="by process, on the demo's server")
    what.add_argument("--scale", action="store_true", help="over problems and n")
    parser.add_argument("--plot", type=Path, help="of --scale: an SVG file")
    arguments = parser.parse_args()
    console = Console()
    if arguments.server:
        console.print(by_process(arguments.problems, arguments.n))
        console.print(f"Aim: orchestrator {AIM_DEMO_MS} ms or less, decoupled.")
    elif arguments.instant:
        console.print(on_instant_models(arguments.problems, arguments.n, arguments.rounds))
        console.print(f"Aim: {AIM_RATE:,} thoughts/s or more.")
    elif arguments.scale:
        runs = []
        for point, run in scale.measure(arguments.problems, arguments.rounds):
            runs.append((point, run))
            console.print(f"{run.problems:,} problems, n={run.n:,}: {scale.cost_us(run):.0f} us")
        best = scale.best(runs)
        console.print(scale.table(best))
        console.print(scale.spread(best))
        if arguments.plot:
            arguments.plot.parent.mkdir(parents=True, exist_ok=True)
            scale.plot(best, arguments.plot)
    else:
        names = [arguments.strategy] if arguments.strategy else list(STRATEGIES)
        profile = cProfile.Profile() if arguments.profile else None
        console.print(alone(names, arguments.problems, arguments.n, profile))
        console.print(f"Aim: {AIM_ALONE_US} us or less.")
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(20)


def alone(names: list[str], problems: int, n: int, profile: cProfile.Profile | None) -> Table:
    """A row for each strategy on scripted engines."""
    table = Table("strategy", "thoughts", "all but gRPC and engines, us", "search core alone, us")
    for name in names:
        config = configure(name, n)
        searches, whole = scripted.run(config, problems, profile)
        thoughts = thoughts_of(searches)
        core = scripted.repeat(config, searches)
        each = 1e6 / thoughts
        table.add_row(name, f"{thoughts:,}", f"{each * whole:.0f}", f"{each * core:.1f}")
    return table


def on_instant_models(problems: int, n: int, rounds: int) -> Table:
    """A row for each round on a Triton server whose models answer at once."""
    table = Table("thoughts", "thoughts/s", "CPU ms per thought", "the server's", "trees")
    config = configure("beam-search", n)
    for run in instant.measure(config, load_deployment("demo"), problems, rounds=rounds):
        table.add_row(
            f"{run.thoughts:,}",
            f"{run.thoughts / run.wall_s:,.0f}",
            f"{1e3 * run.cpu_s / run.thoughts:.3f}",
            f"{1e3 * run.server_cpu_s / run.thoughts:.3f}",
            run.digest[:16],
        )
    return table


def configure(name: str, n: int) -> SearchConfig:
    """A strategy's parameters."""
    strategy = find_strategy(name)
    return strategy.configure({} if "n" in strategy.fixed else {"n": n}, context=320)


if __name__ == "__main__":
    main()
