"""Simulate how long one problem takes, alone and beside others: p50 and p99 of its seconds.

A pair of H100s, one engine each, as in the rows of bench.simulated_schedules. Problems arrive all
at once and as many run at a time as is said, so the time of each counts from its start, not from
its arrival. Run it in two checkouts to compare them; the trees must be the same.

    scripts/run bench.latency                                 # n=16, 1 and 32 at a time
    scripts/run bench.latency --strategy beam-search --in-flight 32 --schedule decoupled
    scripts/run bench.latency --json after.json --than before.json   # and the ratios of two runs
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args

from rich import box
from rich.console import Console
from rich.table import Table

from scripts.bench.schedules.trials import SCHEDULES
from scripts.bench.simulated_schedules import Row, scenario_of
from tts.build.spec import Gpu
from tts.lab.simulation.scenario import simulate
from tts.runs.folder import write_json
from tts.runs.statistics import quantile
from tts.scheduling import ScheduleName

STRATEGIES = ("beam-search", "dvts", "rebase", "best-of-n")
"""Two that can do without some of the scores that they ask for, and two that need them all."""

ROUNDS = 3
"""Problems over those that run at a time: the first and the last ones run beside fewer."""

ALONE = 12
"""Problems where one runs at a time."""


@dataclass(frozen=True)
class Case:
    """What is simulated."""

    gpu: Gpu
    strategy: str
    n: int
    in_flight: int
    schedule: ScheduleName

    @property
    def name(self) -> str:
        """To find the same case in another run by."""
        return f"{self.gpu} {self.strategy} n={self.n} in-flight={self.in_flight} {self.schedule}"


@dataclass(frozen=True)
class Measured:
    """What came of a case, in simulated seconds."""

    p50_s: float
    p99_s: float
    wall_s: float
    verifier_busy: float
    """The share of the wall time in which the verifier computed."""
    digest: str


def measure(case: Case) -> Measured:
    """Simulate one case."""
    row = _Crowd(case.gpu, "separate", case.n, case.in_flight, case.strategy)
    outcome = simulate(scenario_of(row, "auto"), case.schedule)
    p50, p99 = (quantile(outcome.latencies_s, share) or 0.0 for share in (0.5, 0.99))
    busy = outcome.verifier.busy_s / outcome.wall_s
    return Measured(p50, p99, outcome.wall_s, busy, outcome.digest)


class _Crowd(Row):
    """A row with enough problems that most of them run beside as many as is said."""

    @property
    def problems(self) -> int:
        return max(ALONE, ROUNDS * self.in_flight)


def table_of(cases: Sequence[Case], runs: dict[str, Any], before: dict[str, Any]) -> Table:
    """Seconds of each case and, where there is another run, its seconds over these."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="SIMULATED: seconds from the start of a problem to its answer",
        title_justify="left",
    )
    for heading in ("strategy", "schedule"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", "at once", "p50 s", "p99 s", "wall s", "verifier", "p50", "p99", "wall"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("trees")
    for case in cases:
        mine, other = runs[case.name], before.get(case.name)
        seconds = [f"{mine[key]:.2f}" for key in ("p50_s", "p99_s", "wall_s")]
        seconds.append(f"{mine['verifier_busy']:.0%}")
        ratios, trees = ["", "", ""], ""
        if other:
            ratios = [f"{other[key] / mine[key]:.3f}" for key in ("p50_s", "p99_s", "wall_s")]
            trees = "same" if other["digest"] == mine["digest"] else "DIFFER"
        at = (str(case.n), str(case.in_flight))
        table.add_row(case.strategy, case.schedule, *at, *seconds, *ratios, trees)
    return table


def main() -> None:
    """Simulate what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", choices=get_args(Gpu), default="h100", help="of both engines")
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES)
    parser.add_argument("--schedule", nargs="+", choices=SCHEDULES, default=SCHEDULES)
    parser.add_argument("--n", nargs="+", type=int, default=[16])
    parser.add_argument("--in-flight", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--jobs", type=int, default=1, help="processes; 1")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--than", type=Path, help="results of another run, to compare with")
    arguments = parser.parse_args()
    cases = [
        Case(arguments.gpu, strategy, n, in_flight, schedule)
        for strategy in arguments.strategy
        for n in arguments.n
        for in_flight in arguments.in_flight
        for schedule in arguments.schedule
    ]
    runs: dict[str, Any] = {}
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for case, measured in zip(cases, pool.map(measure, cases), strict=True):
            runs[case.name] = asdict(measured)
            if arguments.json:
                write_json(arguments.json, runs)
    before = json.loads(arguments.than.read_text()) if arguments.than else {}
    console = Console(width=max(Console().width, 120))
    console.print(table_of(cases, runs, before))


if __name__ == "__main__":
    main()
