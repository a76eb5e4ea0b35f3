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
import sys
from pathlib import Path
from typing import Any

from scripts.bench.host.requests import Bare
from scripts.bench.host.soak import soak
from scripts.bench.host.speed import speed, verdict
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.serving.server.start import RunningServer, start_server


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
