"""The schedules on GPUs that are not at hand; everything here is simulated (docs/simulation.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from rich import box
from rich.table import Table

from tts.build.spec import Gpu
from tts.scheduling import ScheduleName
from tts.simulation.pairs import simulated_deployment
from tts.simulation.scenario import Scenario, simulate
from tts.simulation.workload import typical
from tts.strategies.catalog import find_strategy

from .trials import SCHEDULES

GPUS: tuple[Gpu, ...] = ("h100", "a100-80g")
SIZES = (16, 64, 256)
IN_FLIGHT = (1, 8, 64)
MOST_CHAINS = 3072  # n times problems: beyond, a scenario takes minutes

Row = dict[str, Any]


def problems_of(n: int, in_flight: int) -> int:
    """Twice as many as run at a time, but at least 4, at most 64, and no more than is quick."""
    return max(4, min(2 * in_flight, 64, MOST_CHAINS // n))


def simulate_one(gpu: Gpu, n: int, in_flight: int, schedule: ScheduleName) -> Row:
    """Both engines on one GPU, time-sliced: the worst case of sharing it."""
    deployment = simulated_deployment(gpu, gpus=1)
    parameters = find_strategy("beam-search").configure(
        {"n": n, "beam_width": 4}, context=deployment.generator.max_seq_len
    )
    problems = problems_of(n, in_flight)
    outcome = simulate(
        Scenario(deployment, "time-sliced", typical(), parameters, problems, in_flight), schedule
    )
    return {
        "gpu": gpu,
        "n": n,
        "in_flight": in_flight,
        "problems": problems,
        "schedule": schedule,
        "wall_s": outcome.wall_s,
        "latencies_s": outcome.latencies_s,
        "digest": outcome.digest,
        "real_s": outcome.real_s,
    }


def simulate_all(rows: list[Row], say: Callable[[str], None]) -> None:
    """Add a row for every scenario and schedule, as they are done; on all cores."""
    wanted = [
        (gpu, n, in_flight, schedule)
        for gpu in GPUS
        for n in SIZES
        for in_flight in IN_FLIGHT
        for schedule in SCHEDULES
    ]
    began = time.monotonic()
    chains = [n * problems_of(n, in_flight) for _, n, in_flight, _ in wanted]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        try:
            for row in pool.map(simulate_one, *zip(*wanted, strict=True)):
                rows.append(row)
                spent, done = time.monotonic() - began, sum(chains[: len(rows)])
                left = spent * (sum(chains) - done) / done
                say(
                    f"simulated {row['gpu']}, n={row['n']}, {row['in_flight']} in flight, "
                    f"{row['schedule']}: {row['wall_s']:,.1f} s in {row['real_s']:.1f} s; "
                    f"about {left / 60:.0f} min left"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def simulated_table(rows: list[Row]) -> Table:
    """Each scenario's wall times over decoupled's."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title="SIMULATED: Llama-3.2-1B and an 8B verifier on one GPU, time-sliced; wall time over "
        "decoupled's",
        title_justify="left",
        caption="A scenario has twice as many problems as run at a time, but at least 4 and at "
        f"most 64, and fewer where n times problems would exceed {MOST_CHAINS:,}.",
    )
    for heading in ("gpu", "n", "in flight", "problems", "decoupled s", *SCHEDULES[:-1]):
        table.add_column(heading, justify="right")
    table.add_column("same trees")
    for gpu in GPUS:
        for n in SIZES:
            for in_flight in IN_FLIGHT:
                members = {
                    row["schedule"]: row
                    for row in rows
                    if (row["gpu"], row["n"], row["in_flight"]) == (gpu, n, in_flight)
                }
                if "decoupled" not in members:
                    continue
                wall = members["decoupled"]["wall_s"]
                same = len({row["digest"] for row in members.values()}) == 1
                table.add_row(
                    gpu,
                    str(n),
                    str(in_flight),
                    str(members["decoupled"]["problems"]),
                    f"{wall:,.1f}",
                    *(f"{members[name]['wall_s'] / wall:.2f}" for name in SCHEDULES[:-1]),
                    "yes" if same else "NO",
                )
    return table
