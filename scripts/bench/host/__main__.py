"""Measure the engine host of a deployment: what the way through Triton costs, and whether it lasts.

speed  tokens per second at several numbers of requests in flight, through gRPC and with the bare
       pipeline in turns (A B B A), so that both see the same machine, and the CPU seconds of each
       process per 1,000 tokens; with one and with two threads for the engine.
soak   thousands of requests with cancellations and every kind of bad request among them: no crash,
       no wrong answer, no KV block and no memory left behind.

    scripts/run bench.host demo --output bench.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.common import cpu_s
from scripts.bench.host.requests import Bare, Client, make_works, processes_of, through_grpc
from scripts.bench.host.soak import soak
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.engines import wire
from tts.serving.server.start import RunningServer, start_server

AIM = 0.95  # of the bare pipeline's tokens per second, at AIM_IN_FLIGHT with one thread
AIM_IN_FLIGHT = 64


async def speed(
    server: RunningServer,
    bare: Bare,
    levels: list[int],
    rounds: int,
    prompt: int,
    tokens: int,
    threads: int,
) -> list[dict[str, float]]:
    """A row for each level: medians of the rounds, the first of which is not counted."""
    client = Client(server.addresses.grpc)
    triton, host = processes_of(server, wire.GENERATOR)
    rows = []
    for in_flight in levels:
        count = max(8, in_flight * 3)
        turns: list[dict[str, float]] = []
        for turn in range(rounds + 1):
            works = make_works(bare, count, prompt, tokens, seed=in_flight * 100 + turn)
            sides: dict[str, list[list[int]]] = {}
            used: dict[str, float] = {}
            for side in ("bare", "grpc") if turn % 2 else ("grpc", "bare"):
                started, own = time.perf_counter(), own_cpu()
                before = [cpu_s(processes) for processes in (host, [triton])]
                if side == "bare":
                    sides[side] = bare.run(works, in_flight)
                else:
                    sides[side] = await through_grpc(client, works, in_flight)
                    after = [cpu_s(processes) for processes in (host, [triton])]
                    used["host_cpu"], used["triton_cpu"] = np.subtract(after, before)
                used[f"{side}_s"] = time.perf_counter() - started
                used["bare_cpu" if side == "bare" else "client_cpu"] = own_cpu() - own
            if sides["grpc"] != sides["bare"]:
                raise SystemExit(f"answers differ from the bare pipeline at {in_flight} in flight")
            used["thousands"] = sum(map(len, sides["grpc"])) / 1000
            turns.append(used)
        rows.append(row_of(threads, in_flight, turns[1:]))
        print_row(rows[-1], header=len(rows) == 1)
    await client.close()
    return rows


def row_of(threads: int, in_flight: int, turns: list[dict[str, float]]) -> dict[str, float]:
    """Medians over the rounds."""

    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, turns))

    def per_thousand(name: str, turn: dict[str, float]) -> float:
        return turn[name] / turn["thousands"]

    return {
        "threads": threads,
        "in_flight": in_flight,
        "bare_tokens_per_s": median(lambda turn: 1000 * turn["thousands"] / turn["bare_s"]),
        "grpc_tokens_per_s": median(lambda turn: 1000 * turn["thousands"] / turn["grpc_s"]),
        "grpc_over_bare": median(lambda turn: turn["bare_s"] / turn["grpc_s"]),
    } | {
        f"{name}_s_per_1000": median(partial(per_thousand, name))
        for name in ("bare_cpu", "host_cpu", "triton_cpu", "client_cpu")
    }


def print_row(row: dict[str, float], *, header: bool) -> None:
    """Print one line of the table of speeds."""
    if header:
        print("  ".join(f"{name:>19}" for name in row))
    cells = (f"{value:.3f}" if value < 50 else f"{value:.0f}" for value in row.values())
    print("  ".join(f"{cell.removesuffix('.000'):>19}" for cell in cells), flush=True)


def verdict(rows: list[dict[str, float]]) -> str:
    """The aim beside the result, if it was measured."""
    for row in rows:
        if (row["threads"], row["in_flight"]) == (1, AIM_IN_FLIGHT):
            share = row["grpc_over_bare"]
            result = f"{share:.3f}, aim {AIM}: {'met' if share >= AIM else 'not met'}"
            return f"through gRPC over bare at {AIM_IN_FLIGHT} in flight: {result}"
    return f"the aim is for {AIM_IN_FLIGHT} in flight and one thread, which were not measured"


def own_cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure what the command line asks for, and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("deployment", help="name of a bundled deployment, or a file")
    parser.add_argument("--threads", default="1,2", help="of the engine, comma-separated")
    parser.add_argument("--in-flight", default="1,8,64", help="comma-separated levels")
    parser.add_argument("--rounds", type=int, default=3, help="turns of bare and gRPC per level")
    parser.add_argument("--prompt", type=int, default=64, help="prompt length, tokens")
    parser.add_argument("--tokens", type=int, default=100, help="tokens to sample per request")
    parser.add_argument("--soak", type=int, default=3000, metavar="N", help="requests; 0 for none")
    parser.add_argument("--output", type=Path, help="write the numbers to this JSON file")
    arguments = parser.parse_args()
    deployment = load_deployment(arguments.deployment)
    build_engines(deployment, say=lambda line: print(line, file=sys.stderr))
    results: dict[str, Any] = {"deployment": deployment.name, "cpus": os.cpu_count()}
    results |= asyncio.run(measure_all(deployment, arguments))
    print(verdict(results["speed"]))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


async def measure(
    server: RunningServer, bare: Bare, arguments: argparse.Namespace, threads: int, soaking: bool
) -> dict[str, Any]:
    """All that is measured with so many threads."""
    # in one event loop: grpc.aio is not made for several in one process
    levels = [int(level) for level in arguments.in_flight.split(",") if level]
    results: dict[str, Any] = {
        "speed": await speed(
            server, bare, levels, arguments.rounds, arguments.prompt, arguments.tokens, threads
        )
    }
    if soaking:
        results["soak"] = await soak(server, bare, arguments.soak, in_flight=64)
        print(json.dumps(results["soak"]))
    return results


def with_threads(deployment: Deployment, threads: int) -> Deployment:
    """The deployment with so many threads for its generator."""
    generator = deployment.generator.model_copy(update={"threads": threads})
    return deployment.model_copy(update={"generator": generator})


async def measure_all(deployment: Deployment, arguments: argparse.Namespace) -> dict[str, Any]:
    """A server for each number of threads; the soak on the first."""
    results: dict[str, Any] = {"speed": []}
    for threads in map(int, arguments.threads.split(",")):
        served = with_threads(deployment, threads)
        with start_server(served) as server:
            soaking = bool(arguments.soak) and "soak" not in results
            measured = await measure(server, Bare(served), arguments, threads, soaking)
        results["speed"] += measured.pop("speed")
        results |= measured
    return results


if __name__ == "__main__":
    main()
