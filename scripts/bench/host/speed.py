"""Tokens per second through gRPC and of the bare pipeline, in turns; CPU seconds by process."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import psutil

from tts.engines import wire
from tts.serving.server.start import RunningServer

from .requests import Bare, Client, make_works, processes_of, through_grpc

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
                before = [server_cpu(processes) for processes in (host, [triton])]
                if side == "bare":
                    sides[side] = bare.run(works, in_flight)
                else:
                    sides[side] = await through_grpc(client, works, in_flight)
                    after = [server_cpu(processes) for processes in (host, [triton])]
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


def server_cpu(processes: list[psutil.Process]) -> float:
    """CPU seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def own_cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
