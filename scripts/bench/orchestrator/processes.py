"""What each process of a run on the demo pair's real server costs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.table import Table

from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.engines import wire
from tts.lab.bench.single_run import run_bench
from tts.lab.observer import Observer
from tts.runs import events
from tts.runs.config import RunConfig
from tts.runs.log import read_events
from tts.scheduling import ScheduleName
from tts.serving.server.start import RunningServer, start_server


def by_process(problems: int, n: int) -> Table:
    """CPU ms per thought of every process that takes part in a run on a server."""
    deployment = load_deployment("demo")
    build_engines(deployment, say=lambda line: None)
    names = ["orchestrator", "tritonserver", wire.GENERATOR, wire.PRM_ENGINE, wire.PRM_SCORE]
    table = Table("schedule", "wall s", "thoughts", *names, "all")
    schedules: tuple[ScheduleName, ...] = ("lockstep", "decoupled")
    for schedule in schedules:
        with tempfile.TemporaryDirectory() as folder, start_server(deployment) as server:
            processes = [psutil.Process(), *server_processes(server, names[2:])]

            _bench(Path(folder, "first"), schedule, n, 1, seed=1)  # imports, what is made once
            before, started = list(map(cpu_s, processes)), time.perf_counter()
            run = _bench(Path(folder, "measured"), schedule, n, problems, seed=0)
            wall = time.perf_counter() - started
            spent = [cpu_s(process) - was for process, was in zip(processes, before, strict=True)]
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
    assert server.state.server is not None
    root = psutil.Process(server.state.server.pid)
    stubs: dict[str, psutil.Process] = {}
    for child in root.children(recursive=True):
        words = " ".join(child.cmdline())
        stubs |= {model: child for model in models if f"/{model}/1/model.py" in words}
    return [root, *(stubs[model] for model in models)]


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
