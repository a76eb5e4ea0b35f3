"""What the orchestrator costs beside engines: processor time per thought, and memory.

Without options: of every strategy, on scripted engines of this process that answer at once; all but
gRPC and engines is in it. Each run is in a folder, and in a process of its own, behind a small run
that is not counted. The least of --rounds counts.

    scripts/run bench.orchestrator --problems 100

--scale: beam search from 10 problems to --problems at n=4, and from n=4 to n=1024: does the cost
stay flat? About 4 minutes a round for 10,000 problems; 15 more for 100,000.

--instant: beam search on a real Triton server whose models answer at once. The orchestrator has one
core, the server the others; thoughts per second are those of that one core. Triton may crash under
models this fast (a segmentation fault of the server): then run it again.

    scripts/run bench.orchestrator --scale --problems 10000
    scripts/run bench.orchestrator --instant --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts.bench.common import cpu_s, family_of, machine, table_of
from scripts.bench.instant_server import serve_models
from scripts.programs import ROOT
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.session import AsyncSession
from tts.session.event_loop import run_loop
from tts.strategies.names import STRATEGY_NAMES

WORDS = ("37 + 58 = 95", "Adding ", "12", " gives ", "Therefore")
END = 0.15
"""How many steps end a chain."""
PROBLEMS = (10, 100, 1_000, 10_000, 100_000)
SIZES = (4, 16, 64, 256, 1_024)
CHAINS = 4_096
"""n times problems, in the runs that differ in n."""
STEPS = 64
"""Different answers of the instant generator."""
AIM_RATE = 1500
AIM_FLAT = 1.2


@dataclass(frozen=True)
class Run:
    """One run in a folder, with its log and summary."""

    strategy: str
    problems: int
    n: int
    thoughts: int
    cpu_s: float
    peak_mb: float
    log_mb: float

    @property
    def cost_us(self) -> float:
        """Processor time per thought."""
        return 1e6 * self.cpu_s / self.thoughts


@dataclass(frozen=True)
class ScriptedGenerator:
    """Writes steps of `words` that depend on the prompt's seed alone."""

    words: Sequence[Sequence[int]]
    delimiter: Sequence[int]

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        seed = zlib.crc32(call.input_ids.tobytes()) if call.temperature == 0 else call.seed
        choice = random.Random(seed)
        ids: list[int] = []
        while len(ids) < call.max_new_tokens:
            for _ in range(choice.randint(1, 3)):
                ids += choice.choice(self.words)
            if choice.random() < END:
                break
            ids += self.delimiter
            if call.stop_at_step:
                break
        return ids[: call.max_new_tokens]


class ScriptedVerifier:
    """Scores by a hash of the ids."""

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        return VerifierResult(zlib.crc32(call.input_ids.tobytes()) % 1001 / 1000)


def main() -> None:
    """Measure what the command line asks for, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strategy", choices=STRATEGY_NAMES, nargs="+", default=STRATEGY_NAMES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--scale", action="store_true", help="over problems and n")
    what.add_argument("--instant", action="store_true", help="a server of models without work")
    what.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_loop(solved(options.strategy[0], 1, 4))
        run = run_loop(solved(options.strategy[0], options.problems, options.n))
        print(json.dumps(asdict(run)))
        return
    console = Console(width=max(Console().width, 120))
    if options.instant:
        console.print(on_instant_models(options.problems, options.n, options.rounds))
        console.print(f"Aim: {AIM_RATE:,} thoughts/s or more.")
    else:
        points = [(name, options.problems, options.n) for name in options.strategy]
        if options.scale:
            points = [("beam-search", count, 4) for count in PROBLEMS if count <= options.problems]
            points += [("beam-search", CHAINS // n, n) for n in SIZES]
        runs = measured(points, options.rounds)
        console.print(table(runs))
        if options.scale:
            costs, peaks = [run.cost_us for run in runs], [run.peak_mb for run in runs]
            console.print(
                f"Largest over smallest: CPU per thought {max(costs) / min(costs):.2f}, peak "
                f"memory {max(peaks) / min(peaks):.2f}; aim {AIM_FLAT} or less."
            )
    console.print(machine())


def measured(points: Sequence[tuple[str, int, int]], rounds: int) -> list[Run]:
    """The least of the rounds of each point, which take turns, every other round in reverse."""
    best: dict[tuple[str, int, int], Run] = {}
    for turn in range(rounds):
        for point in points[:: -1 if turn % 2 else 1]:
            strategy, problems, n = point
            words = ["--one", "--strategy", strategy, "--problems", problems, "--n", n]
            process = subprocess.run(
                [sys.executable, "-m", "scripts.bench.orchestrator", *map(str, words)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                check=True,
            )
            run = Run(**json.loads(process.stdout))
            if point not in best or run.cpu_s < best[point].cpu_s:
                best[point] = run
    return [best[point] for point in dict.fromkeys(points)]


def table(runs: Sequence[Run]) -> Table:
    """A row for each run."""
    rows = table_of(
        "scripted engines", "strategy", "problems", "n", "thoughts", "CPU us per thought",
        "peak MB", "log MB", left_aligned={"strategy"},
    )  # fmt: skip
    for run in runs:
        rows.add_row(
            *(run.strategy, f"{run.problems:,}", f"{run.n:,}", f"{run.thoughts:,}"),
            *(f"{run.cost_us:.0f}", f"{run.peak_mb:.0f}", f"{run.log_mb:.1f}"),
        )
    return rows


async def solved(strategy: str, problems: int, n: int) -> Run:
    """Made-up questions, solved in this process on scripted engines."""
    encode = Tokenizer(load_deployment("demo").generator.tokenizer_folder).encode
    generator = ScriptedGenerator([encode(word) for word in WORDS], encode("\n\n"))
    verifier = ScriptedVerifier()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        async with AsyncSession("demo", generator=generator, verifier=verifier) as session:
            began = time.process_time()
            thoughts = await _solve(session, problems, strategy, n, out=out)
            cpu_s = time.process_time() - began
        log_mb = (out / "events.jsonl").stat().st_size / 1e6
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return Run(strategy, problems, n, thoughts, cpu_s, peak_mb, log_mb)


async def _solve(
    session: AsyncSession, problems: int, strategy: str, n: int, **options: Any
) -> int:
    """Solve made-up questions; the thoughts of their trees."""
    questions = [(f"Compute {number} + 1.", str(number + 1)) for number in range(problems)]
    parameters: dict[str, Any] = {} if strategy == "greedy" else {"n": n}
    thoughts = 0
    async for result in session.solve_many(questions, strategy=strategy, **parameters, **options):
        thoughts += len(result.tree or ())
    return thoughts


def on_instant_models(problems: int, n: int, rounds: int) -> Table:
    """A row for each round on a Triton server whose models answer at once."""
    rows = table_of(
        "a server that answers at once", "thoughts", "thoughts/s", "CPU ms per thought",
        "the server's",
    )  # fmt: skip
    deployment = load_deployment("demo")
    encode, draw = Tokenizer(deployment.generator.tokenizer_folder).encode, random.Random(0)
    steps = []
    for _ in range(STEPS):
        ids = [token for _ in range(draw.randint(1, 3)) for token in encode(draw.choice(WORDS))]
        steps.append(ids if draw.random() < END else ids + encode("\n\n"))
    cores = sorted(os.sched_getaffinity(0))

    async def measure(grpc: str, server: Any) -> None:
        async with AsyncSession(deployment, endpoints=(grpc,)) as session:
            await _solve(session, 2, "beam-search", n)  # imports, and what is made once
            while rows.row_count < rounds:
                processes = family_of(server)
                served, wall, cpu = cpu_s(processes), time.perf_counter(), time.process_time()
                thoughts = await _solve(session, problems, "beam-search", n)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                each_ms = (1e3 * cpu / thoughts, 1e3 * (cpu_s(processes) - served) / thoughts)
                rows.add_row(
                    f"{thoughts:,}", f"{thoughts / wall:,.0f}", *(f"{ms:.3f}" for ms in each_ms)
                )

    os.sched_setaffinity(0, cores[1:] or cores)
    with (
        tempfile.TemporaryDirectory(prefix="tts-instant-") as folder,
        serve_models(deployment, Path(folder), "steps", steps) as (addresses, server),
    ):
        os.sched_setaffinity(0, cores[:1])  # what is started from here on inherits it
        run_loop(measure(addresses.grpc, server))
    os.sched_setaffinity(0, cores)
    return rows


if __name__ == "__main__":
    main()
