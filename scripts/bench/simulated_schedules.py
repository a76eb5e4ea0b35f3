"""Simulate the schedules on GPUs that are not at hand, side by side: which is first in which case?

Every row is one case: GPU, how the engines share it, precision, which model is the bottleneck,
strategy, n, problems in flight. Each is simulated under all four schedules, and under decoupled
without speculation (docs/explanation/simulation.md says what the simulation leaves out).

    scripts/run bench.simulated_schedules --jobs 2          # all rows on two cores
    scripts/run bench.simulated_schedules --row 'a100.*n=16 ' # those whose name matches
    scripts/run bench.simulated_schedules --list            # the names
    scripts/run bench.simulated_schedules --drawn 40 --seed 1 # other cases, drawn at random
    scripts/run bench.simulated_schedules --out FILE        # goes on where FILE has ended

The JSON file is written after every run; Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from rich import box
from rich.console import Console
from rich.table import Table

from scripts.bench.schedules.trials import SCHEDULES
from tts.build import paths
from tts.build.spec import Gpu
from tts.engines.simulated import GPUS
from tts.lab.simulation.pairs import simulated_deployment
from tts.lab.simulation.scenario import Scenario, simulate
from tts.lab.simulation.workload import typical
from tts.runs.folder import write_json
from tts.scheduling import ScheduleName, SpeculationName
from tts.strategies.catalog import find_strategy

Placing = Literal["time-sliced", "overlapped", "separate"]
"""Both engines on one GPU, at the two bounds of sharing it; or one GPU each."""

PLACINGS: tuple[Placing, ...] = get_args(Placing)

WIDTH = 4
"""Children of a kept beam, in every row of the table."""

MOST_N, MOST_IN_FLIGHT = 256, 64

MOST_CHAINS = 1536
"""n times problems: beyond, a run takes minutes of real time."""

VARIANTS: tuple[tuple[ScheduleName, SpeculationName], ...] = (
    *((schedule, "auto") for schedule in SCHEDULES),
    ("decoupled", "off"),
)

AIM = 0.98
"""The least that the best other schedule's time may be of decoupled's; and off's of auto's."""

WITH_BEAMS = ("beam-search", "dvts")

OTHER_STRATEGIES = (
    "dvts",
    "rebase",
    "particle-filtering",
    "mcts",
    "best-of-n",
    "majority-vote",
)
"""What is drawn beside beam search."""

Bottleneck = Literal["verifier", "generator"]

MODELS: dict[Bottleneck, dict[str, str]] = {
    "verifier": {"generator": "Llama-3.2-1B-Instruct", "verifier": "Llama3.1-8B-PRM-Deepseek-Data"},
    "generator": {"generator": "Llama-3.1-8B-Instruct", "verifier": "Llama-3.2-1B-Instruct"},
}
"""The pair of models, by the one that is the bottleneck."""

Measured = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One row of the table: everything but the schedule."""

    gpu: Gpu
    placing: Placing
    n: int
    in_flight: int
    strategy: str = "beam-search"
    precision: Literal["bf16", "fp8"] = "bf16"
    bottleneck: Bottleneck = "verifier"
    """Llama-3.2-1B and an 8B verifier, or an 8B generator and a 1B verifier."""
    beam_width: int = WIDTH
    """Of a strategy that has beams."""

    @property
    def problems(self) -> int:
        """Twice as many as run at a time, at least 4, and no more than is quick."""
        return max(4, min(2 * self.in_flight, MOST_CHAINS // self.n))

    @property
    def search(self) -> str:
        """The strategy, with its beam width where that is another than the table's."""
        other = "" if self.beam_width == WIDTH else f" width={self.beam_width}"
        return self.strategy + other

    @property
    def name(self) -> str:
        """To choose rows by."""
        parts = (self.gpu, self.placing, self.precision, self.bottleneck, self.search)
        return " ".join((*parts, f"n={self.n}", f"in-flight={self.in_flight}"))


def rows() -> Iterator[Row]:
    """The whole table."""
    gpus: tuple[Gpu, ...] = ("h100", "a100-80g")
    at_once = (1, 8, 64)
    for gpu in gpus:
        for placing in PLACINGS:
            for n in (16, 64):
                yield from (Row(gpu, placing, n, each) for each in at_once)
        yield from (Row(gpu, "time-sliced", 4, each) for each in at_once)
        yield from (Row(gpu, "time-sliced", 256, each) for each in (1, 8))
        yield from (Row(gpu, "separate", n, 8) for n in (4, 256))
        for placing in PLACINGS:
            for each in at_once:
                yield Row(gpu, placing, 16, each, bottleneck="generator")
        for strategy in ("dvts", "particle-filtering"):
            yield from (Row(gpu, "time-sliced", 16, each, strategy) for each in (8, 64))
            yield Row(gpu, "separate", 16, 8, strategy)
    for placing in (PLACINGS[0], PLACINGS[2]):
        yield from (Row("h100", placing, 16, each, precision="fp8") for each in at_once)
    yield Row("h100", "time-sliced", 64, 8, precision="fp8")


def drawn_rows(count: int, seed: int) -> list[Row]:
    """Rows drawn at random: any GPU, numbers between those of the table, and more strategies.

    Half of them are beam search. n is a multiple of 4; of n and of the problems in flight each
    doubling is as likely as the next. fp8 only where the GPU computes in it.
    """
    rng = random.Random(seed)
    drawn: dict[Row, None] = {}
    while len(drawn) < count:
        gpu = rng.choice(get_args(Gpu))
        placing = rng.choice(PLACINGS)
        n = 4 * _log_uniform(rng, MOST_N // 4)
        in_flight = _log_uniform(rng, MOST_IN_FLIGHT)
        strategy = rng.choice((*["beam-search"] * len(OTHER_STRATEGIES), *OTHER_STRATEGIES))
        fp8 = rng.random() < 0.5 and GPUS[gpu].fp8_flops is not None
        bottleneck = rng.choice(tuple(MODELS))
        widths = [width for width in (2, WIDTH, 8) if n % width == 0]
        width = rng.choice(widths) if strategy in WITH_BEAMS else WIDTH
        precision: Literal["bf16", "fp8"] = "fp8" if fp8 else "bf16"
        drawn[Row(gpu, placing, n, in_flight, strategy, precision, bottleneck, width)] = None
    return list(drawn)


def _log_uniform(rng: random.Random, most: int) -> int:
    """A number from 1 to `most`."""
    return min(most, int(math.exp(rng.uniform(0, math.log(most + 1)))))


def scenario_of(row: Row, speculation: SpeculationName) -> Scenario:
    """What is simulated in a row."""
    gpus = 2 if row.placing == "separate" else 1
    deployment = simulated_deployment(
        row.gpu, gpus, precision=row.precision, **MODELS[row.bottleneck]
    )
    parameters: dict[str, Any] = {"n": row.n}
    if row.strategy in WITH_BEAMS:
        parameters["beam_width"] = row.beam_width
    return Scenario(
        deployment,
        "time-sliced" if row.placing == "separate" else row.placing,
        typical(),
        find_strategy(row.strategy).configure(parameters, context=deployment.generator.max_seq_len),
        row.problems,
        row.in_flight,
        speculation=speculation,
    )


def simulate_row(row: Row, schedule: ScheduleName, speculation: SpeculationName) -> Measured:
    """One run of a row."""
    began = time.process_time()
    outcome = simulate(scenario_of(row, speculation), schedule)
    return {
        "row": row.name,
        "schedule": schedule,
        "speculation": speculation,
        "wall_s": outcome.wall_s,
        "median_s": median(outcome.latencies_s),
        "speculated": outcome.speculated,
        "used": outcome.used,
        "generator": asdict(outcome.generator),
        "verifier": asdict(outcome.verifier),
        "digest": outcome.digest,
        "cpu_s": time.process_time() - began,
    }


def table_of(chosen: Sequence[Row], runs: Sequence[Measured]) -> Table:
    """Each row's wall times over decoupled's, and what they come to."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title="SIMULATED: wall time of the other schedules over decoupled's with --speculation "
        "auto; and of decoupled without speculation over with it",
        title_justify="left",
    )
    for heading in ("GPU", "engines", "precision", "bottleneck", "strategy"):
        table.add_column(heading, no_wrap=True)
    numbers = ("n", "at once", "problems", "dec. s", *SCHEDULES[:-1], "off/auto")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("trees")
    walls, digests = _by_row(runs)
    whole = [row for row in chosen if len(walls[row.name]) == len(VARIANTS)]
    for row in whole:
        mine, ratios = _compared(walls[row.name])
        table.add_row(
            row.gpu,
            row.placing,
            row.precision,
            row.bottleneck,
            row.search,
            str(row.n),
            str(row.in_flight),
            str(row.problems),
            f"{mine:,.1f}",
            *map(_marked, ratios),
            "same" if len(digests[row.name]) == 1 else "DIFFER",
        )
    if whole:
        table.caption = summary(whole, runs)
    return table


def markdown_of(chosen: Sequence[Row], runs: Sequence[Measured]) -> str:
    """The same as a table in Markdown, as benchmarks/README.md has it."""
    case = ("GPU", "engines", "precision", "bottleneck", "strategy", "n", "in flight")
    headings = (*case, "decoupled, s", *SCHEDULES[:-1], "off / auto")
    lines = [_piped(headings), _piped(["---"] * len(headings))]
    walls, _ = _by_row(runs)
    for row in chosen:
        if len(walls[row.name]) < len(VARIANTS):
            continue
        mine, ratios = _compared(walls[row.name])
        cells = (row.gpu.upper().removesuffix("-80G"), row.placing, row.precision, row.bottleneck)
        numbers = (f"{mine:.1f}", *(f"{ratio:.2f}" for ratio in ratios))
        lines.append(_piped([*cells, row.search, str(row.n), str(row.in_flight), *numbers]))
    return "\n".join(lines)


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def summary(chosen: Sequence[Row], runs: Sequence[Measured]) -> str:
    """In how many rows decoupled is first, and the worst rows; rows must be complete."""
    walls, _ = _by_row(runs)
    best: dict[str, float] = {}
    speculation: dict[str, float] = {}
    single: dict[str, float] = {}
    for row in chosen:
        _, ratios = _compared(walls[row.name])
        best[row.name], speculation[row.name] = min(ratios[:-1]), ratios[-1]
        if row.placing == "separate" and row.in_flight == 1 and row.strategy == "beam-search":
            single[row.name] = speculation[row.name]
    lines = [
        f"decoupled is first in {sum(ratio >= 1 for ratio in best.values())} of {len(best)} rows, "
        f"within 2% of the first in {sum(ratio >= AIM for ratio in best.values())}",
        _worst("best other / decoupled", best, AIM),
        _worst("off / auto", speculation, AIM),
    ]
    if single:
        lines.append(_worst("off / auto, one problem at a time on a GPU each", single, 1.2))
    return "\n".join(lines)


def _compared(times: dict[tuple[str, str], float]) -> tuple[float, list[float]]:
    """Seconds of decoupled; over them those of each other schedule, and without speculation."""
    mine = times["decoupled", "auto"]
    others = [*((name, "auto") for name in SCHEDULES[:-1]), ("decoupled", "off")]
    return mine, [times[each] / mine for each in others]


def _by_row(
    runs: Sequence[Measured],
) -> tuple[dict[str, dict[tuple[str, str], float]], dict[str, set[str]]]:
    """Wall times and digests of trees."""
    walls: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    digests: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        walls[run["row"]][run["schedule"], run["speculation"]] = run["wall_s"]
        digests[run["row"]].add(run["digest"])
    return walls, digests


def _worst(what: str, ratios: dict[str, float], aim: float) -> str:
    name = min(ratios, key=lambda name: ratios[name])
    missed = sum(ratio < aim for ratio in ratios.values())
    met = "met" if not missed else f"missed in {missed} of {len(ratios)} rows"
    return f"{what}: worst {ratios[name]:.3f} ({name}); aim {aim:g}, {met}"


def _marked(ratio: float) -> str:
    return f"[bold]{ratio:.2f}[/]" if ratio < AIM else f"{ratio:.2f}"


def main() -> None:
    """Simulate what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="append", help="a regular expression; may be repeated")
    parser.add_argument("--drawn", type=int, help="so many rows drawn at random, not the table's")
    parser.add_argument("--seed", type=int, default=1, help="of the draw; 1")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 1")
    parser.add_argument("--out", type=Path, help="the JSON file; a new one under runs/")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown, too")
    parser.add_argument("--list", action="store_true", help="print the rows' names")
    arguments = parser.parse_args()
    patterns = arguments.row or [""]
    every = drawn_rows(arguments.drawn, arguments.seed) if arguments.drawn else rows()
    chosen = [row for row in every if any(re.search(each, row.name) for each in patterns)]
    if arguments.list:
        print("\n".join(row.name for row in chosen))
        return
    out = arguments.out or paths.runs_dir() / f"bench-simulated-{datetime.now():%Y%m%d-%H%M%S}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(out.read_text())["runs"] if out.is_file() else []
    try:
        simulate_rows(chosen, runs, arguments.jobs, out)
    except KeyboardInterrupt:
        say("interrupted")
    console = Console(width=max(Console().width, 155))
    console.print(table_of(chosen, runs))
    if arguments.markdown:
        print(markdown_of(chosen, runs))
    console.print(f"raw results: {out}", style="dim", highlight=False, soft_wrap=True)


def simulate_rows(chosen: Sequence[Row], runs: list[dict[str, Any]], jobs: int, out: Path) -> None:
    """Add the runs that are not there yet to `runs`, and write them all after each."""
    done = {(run["row"], run["schedule"], run["speculation"]) for run in runs}
    wanted = [(row, *each) for row in chosen for each in VARIANTS if (row.name, *each) not in done]
    wanted.sort(key=lambda run: run[0].n * run[0].problems, reverse=True)
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            futures = [pool.submit(simulate_row, *each) for each in wanted]
            for number, future in enumerate(as_completed(futures), start=1):
                run = future.result()
                runs.append(run)
                write_json(out, {"runs": runs})
                say(
                    f"[{number}/{len(wanted)}, {time.monotonic() - began:.0f} s] {run['row']}: "
                    f"{run['schedule']}, {run['speculation']}: {run['wall_s']:,.1f} s"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
