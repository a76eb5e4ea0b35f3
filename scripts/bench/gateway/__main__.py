"""What a gateway adds to a Triton server, at 1, 2, 4 ... 256 requests in flight, 20 for each.

Ours beside a gateway as it is usually written (FastAPI, uvicorn, tritonclient) and beside Triton's
gRPC without any: time to the first token, time between tokens, throughput, the gateway's own
latency, requests that failed; with the demo pair's engines behind them, and with models that answer
at once, so that the gateway is what is measured. All systems run at the same time and are asked in
turn, the order reversed from one concurrency to the next; --rounds repeats all of it, so that a
p99 is not one of a few requests. The stages of our requests are from the gateway's own log of them.

    scripts/run bench.gateway                # everything
    scripts/run bench.gateway --quick        # 1, 8 and 64 in flight, 5 requests for each
    scripts/run bench.gateway --server instant --rounds 3
    scripts/run bench.gateway --server instant --system FastAPI --system "Triton gRPC"

Server, gateway and clients share the machine: what the last line says of its load belongs to the
figures. NVIDIA's OpenAI frontend for Triton is not among the systems: see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import msgspec
import psutil
from rich.console import Console

from scripts.bench.common import cpu_s, family_of
from scripts.bench.gateway import results, systems
from scripts.bench.gateway.load import Outcome, Task
from scripts.bench.gateway.systems import Run
from tts.build.spec import Deployment

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK = (1, 8, 64)
WARM = (32, 10)
"""In flight, and requests for each, before anything is counted."""
WHOLE_AT = 64
"""In flight where whole answers are compared with streamed ones."""
LOAD = Path(__file__).with_name("load.py")


def main() -> None:
    """Measure what was asked for, and print it with the aims."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few levels, few requests")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--server", choices=("instant", "demo"), action="append")
    names = (results.OURS, results.FASTAPI, results.DIRECT)
    parser.add_argument("--system", choices=names, action="append")
    parser.add_argument("--rounds", type=int, default=1, help="repeat each concurrency; pooled")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args()
    console = Console(width=160)
    levels, per_unit = (QUICK, 5) if arguments.quick else (LEVELS, 20)
    begun, spent = time.monotonic(), psutil.cpu_times()
    rows: list[results.Row] = []
    whole: list[results.Row] = []
    for server in arguments.server or ("instant", "demo"):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-bench-")))
            file, deployment = systems.demo_deployment(folder)
            starting = (
                systems.demo_server(deployment)
                if server == "demo"
                else systems.instant_server(deployment, folder)
            )
            grpc = stack.enter_context(starting)
            asked = []
            for name in arguments.system or names:
                log = folder / f"{name}.log"
                if name == results.OURS:
                    asked.append(stack.enter_context(systems.gateway(file, log)))
                elif name == results.FASTAPI:
                    asked.append(stack.enter_context(systems.fastapi(deployment, grpc, log)))
                else:
                    asked.append(systems.direct(grpc))

            ask = partial(measure, deployment=deployment, tokens=arguments.tokens)

            for system in asked:  # not counted: what is learnt at the first requests
                ask(system, *WARM)
            runs: dict[tuple[int, str], list[Run]] = {
                (level, system.name): [] for level in levels for system in asked
            }
            for turn, (_, level) in enumerate(product(range(arguments.rounds), levels)):
                for system in asked if turn % 2 == 0 else asked[::-1]:
                    runs[level, system.name].append(ask(system, level, per_unit))
            here = [results.row_of(server, name, level, runs[level, name]) for level, name in runs]
            title = f"Server: {server}, {arguments.tokens} tokens each"
            results.print_rows(console, title, here)
            rows += here
            whole += [
                results.row_of(
                    *(server, system.name, WHOLE_AT),
                    [ask(system, WHOLE_AT, per_unit, False) for _ in range(arguments.rounds)],
                )
                for system in asked
            ]
            ours = {level: own for (level, name), own in runs.items() if name == results.OURS}
            results.print_stages(
                console,
                f"Where our time goes, server: {server}",
                {level: systems.recorded(deployment, own) for level, own in ours.items()},
            )
    results.print_streaming(console, rows, whole)
    results.print_aims(console, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows + whole]))
    now = psutil.cpu_times()
    busy = 1 - (now.idle - spent.idle) / (time.monotonic() - begun) / (psutil.cpu_count() or 1)
    console.print(
        f"{time.monotonic() - begun:.0f} s; the machine was busy for {busy:.0%} of it, "
        f"load average {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores"
    )


def measure(
    system: systems.System,
    concurrency: int,
    per_unit: int,
    stream: bool = True,
    *,
    deployment: Deployment,
    tokens: int,
) -> Run:
    """Ask one system with so many in flight."""
    bodies = systems.bodies(system, deployment, tokens, stream=stream)
    requests = per_unit * concurrency
    task = Task(system.kind, system.address, concurrency, requests, bodies, stream)
    before, begun = spent_by(system.pid), time.time()
    with tempfile.TemporaryFile() as seen:  # a pipe may take a part only, and lose the rest
        done = subprocess.run(
            [sys.executable, LOAD, str(tokens)],
            input=msgspec.json.encode(task),
            stdout=seen,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            sys.exit(f"The clients of {system.name} failed:\n{done.stderr.decode()[-3000:]}")
        seen.seek(0)
        outcome = msgspec.json.decode(seen.read(), type=Outcome)
    for failure in outcome.failures[:3]:
        print(f"{system.name} at {concurrency}: {failure}", file=sys.stderr)
    spent = spent_by(system.pid)
    used = None if before is None or spent is None else spent - before
    return Run(outcome, used, begun, time.time())


def spent_by(pid: int | None) -> float | None:
    """CPU time of a process and its children so far."""
    return None if pid is None else cpu_s(family_of(psutil.Process(pid)))


if __name__ == "__main__":
    main()
