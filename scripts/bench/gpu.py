"""Measure a started vLLM pair on this machine's GPU within nine minutes, without a network.

Beam search under the schedules, with and without NVIDIA's MPS and vLLM's batch invariance; beside
each the replay on a simulated GPU of the kind, and the energy (with the package nvidia-ml-py). The
pair has random weights of the shapes of Llama-3.2-1B and an 8B verifier, made at first in
OUT/weights (1 to 2 minutes) and used again the next time. Each run begins with cold prefix caches
and is cut off after RUN_S. The plan is CASES: what has no time is left out from its end and named;
what fails is named, and the rest goes on.

    scripts/run bench.gpu OUT                # vLLM is found on PATH
    scripts/run bench.gpu OUT --pair demo
    scripts/run bench.gpu OUT --dry-run      # no GPU: the demo pair, by vLLM's build for CPUs

A new folder in OUT then holds gpu.json, the deployment of each case, and the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from scripts.bench.common import machine, say, table_of
from tts.base.errors import TtsError
from tts.base.paths import deployments_dir
from tts.build.nvidia import gpus
from tts.build.spec import Gpu
from tts.build.tensorrt.gpus import kind_of
from tts.datasets.demo import demo_problems
from tts.lab.bench.simulated_run import SimulationOptions, scenario_of
from tts.lab.simulation.scenario import simulate
from tts.runs.run import Run
from tts.scheduling import ScheduleName
from tts.session import AsyncSession

RUN_S = 25.0
"""Time of a run at most."""
START_S = 120.0
"""Time of a pair's start that is assumed until one was measured."""
END_S = 40.0
"""Time to end the servers, and for the replays."""
IN_FLIGHT = 192
"""Requests in flight on the generator."""
CHECKPOINTS = deployments_dir().parent / "checkpoints"
DEMO_LENGTHS = {"generator": 320, "verifier": 512}
SHAPES = {"generator": "Llama-3.2-1B-Instruct", "verifier": "Llama3.1-8B-PRM-Deepseek-Data"}
LENGTH = 2048
VOCABULARY, ENDS_ONE_IN = 128_256, 70
"""Tokens of the shapes, and how many of them end a step: steps have 70 tokens in the mean."""


@dataclass(frozen=True)
class Case:
    """One way of starting the pair, and the schedules that are measured on it."""

    name: str
    mps: bool = False
    deterministic: bool = False
    schedules: tuple[ScheduleName, ...] = ("decoupled", "batched")


CASES = (
    Case("plain", schedules=("decoupled", "batched", "alternating", "lockstep")),
    Case("mps", mps=True),
    Case("invariant", deterministic=True),
    Case("mps-invariant", mps=True, deterministic=True),
)


@dataclass
class Row:
    """One run."""

    case: Case
    schedule: ScheduleName
    is_complete: bool
    measures: Mapping[str, float | int | None]
    """Values that docs/reference/measures.md defines."""
    trees: Mapping[str, str]
    """The digest of each solved problem's tree."""
    simulated_s: float | None = None
    """Seconds a problem of the replay of the case's first complete run under this schedule."""


@dataclass
class Report:
    """All that came of it, as gpu.json holds it."""

    machine: str
    gpu: str
    simulated_gpu: Gpu
    starts_s: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write gpu.json, also in between: whoever lends a machine may end the program."""
        (folder / "gpu.json").write_text(json.dumps(asdict(self), indent=1))


def main() -> None:
    """Measure what the command line asks for; Ctrl-C keeps what there is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of the results")
    parser.add_argument("--pair", choices=("random", "demo"), default="random")
    parser.add_argument("--minutes", type=float, default=9.0, help="of all of it")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--dry-run", action="store_true", help="the demo pair on CPUs")
    options = parser.parse_args()
    options.end = time.monotonic() + 60 * options.minutes - END_S
    here = [] if options.dry_run else gpus()
    options.gpu = kind_of(here[0].name, here[0].total) if here else None
    if not options.gpu and not options.dry_run:
        sys.exit("error: there is no NVIDIA GPU here of a kind that tts knows; try --dry-run")
    name = f"{here[0].name}, driver {here[0].driver}" if here else "none, a dry run on CPUs"
    report = Report(machine(), name, options.gpu or "h100")
    weights = options.out.resolve() / "weights"
    options.out = weights.with_name(time.strftime("%Y%m%d-%H%M%S"))
    options.out.mkdir(parents=True)
    try:
        checkpoints = {role: CHECKPOINTS / f"demo-{role}" for role in SHAPES}
        if options.pair == "random" and not options.dry_run:
            checkpoints = random_checkpoints(weights)
        deployments = {case: deployment_of(options, case, checkpoints) for case in CASES}
        asyncio.run(measure(options, report, deployments))
        for case, deployment in deployments.items():
            add_simulated(options, report, case, deployment)
    except KeyboardInterrupt:
        report.failures.append("interrupted")
    finally:
        report.write(options.out)
        print_report(report)


def random_checkpoints(folder: Path) -> dict[str, Path]:
    """Checkpoints of both shapes with random weights, by role; both are made at a time."""
    tokenizer = folder / "tokenizer"
    if not tokenizer.is_dir():
        write_tokenizer(tokenizer)
    checkpoints = {role: folder / role for role in SHAPES}
    processes = {}
    for role, shape in SHAPES.items():
        if not checkpoints[role].is_dir():
            program = (sys.executable, "-m", "scripts.random_checkpoint", "--like", shape)
            words = (*program, "--tokenizer", tokenizer, checkpoints[role])
            processes[role] = subprocess.Popen(words, cwd=Path(__file__).parents[2])
    if failures := [role for role, process in processes.items() if process.wait()]:
        sys.exit(f"error: there are no weights for the {' and the '.join(failures)}")
    return checkpoints


def write_tokenizer(folder: Path) -> None:
    """Write the demo pair's tokenizer, filled up with made-up words to the shapes' vocabulary."""
    folder.mkdir(parents=True)
    for file in (CHECKPOINTS / "demo-generator").glob("*token*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    for number in range(len(words), VOCABULARY):  # Ġ is a space, Ċ a new line
        words[f"Ġw{number}" + "ĊĊ" * (number % ENDS_ONE_IN == 0)] = number
    (folder / "tokenizer.json").write_text(json.dumps(content))


def deployment_of(options: argparse.Namespace, case: Case, checkpoints: Mapping[str, Path]) -> Path:
    """The deployment file of a case."""
    data: dict[str, Any] = {"name": f"gpu-{case.name}", "target": "vllm"}
    data |= {"gpu": options.gpu, "mps": case.mps, "deterministic": case.deterministic}
    for role, checkpoint in checkpoints.items():
        data[role] = {
            "checkpoint": str(checkpoint),
            "precision": "bf16" if options.gpu else "fp32",
            "max_seq_len": DEMO_LENGTHS[role] if checkpoint.parent == CHECKPOINTS else LENGTH,
        }
    data["generator"] |= {"in_flight_requests": IN_FLIGHT}
    data["verifier"] |= {"format": "rlhflow", "labels": ["+", "-"], "in_flight_tokens": 65_536}
    file: Path = options.out / f"{case.name}.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


async def measure(
    options: argparse.Namespace, report: Report, deployments: Mapping[Case, Path]
) -> None:
    """Measure every case for which there is time."""
    for case, file in deployments.items():
        left_s = options.end - time.monotonic()
        if case.mps and not options.gpu:
            report.left_out.append(f"{case.name}: needs a GPU")
            continue
        if left_s < max(report.starts_s.values(), default=START_S) + RUN_S:
            report.left_out.append(f"{case.name}: no time")
            continue
        try:
            async with asyncio.timeout(left_s + END_S / 2):
                await measure_case(options, report, case, file)
        except TimeoutError:
            report.failures.append(f"{case.name}: cut off at the end of the time")
        except TtsError as error:
            report.failures.append(f"{case.name}: {error}")


async def measure_case(options: argparse.Namespace, report: Report, case: Case, file: Path) -> None:
    """Start the pair, measure the schedules for which there is time, end the pair."""
    say(f"{case.name}: starting")
    began = time.monotonic()
    async with AsyncSession(file, say=say) as session:
        report.starts_s[case.name] = time.monotonic() - began
        await session.solve("Compute 12 + 30 - 5.", n=options.n, seed=1)  # first requests are slow
        for schedule in case.schedules:
            if time.monotonic() + RUN_S > options.end:
                report.left_out.append(f"{case.name}, {schedule}: no time")
                continue
            await session.reset_prefix_caches()
            out = options.out / f"{case.name}-{schedule}"
            trees: dict[str, str] = {}
            with suppress(TimeoutError):
                async with asyncio.timeout(RUN_S):
                    async for result in session.solve_many(
                        demo_problems(options.problems, 0),
                        in_flight=IN_FLIGHT // options.n,
                        **{"n": options.n, "beam_width": 4, "num_iterations": 6},
                        schedule=schedule,
                        out=out,
                    ):
                        trees[result.problem.id] = result.tree_digest
            measures, is_complete = Run.load(out).measures, len(trees) == options.problems
            report.rows.append(Row(case, schedule, is_complete, measures, trees))
            report.write(options.out)
            say(f"{case.name}, {schedule}: {len(trees)} problems")


def add_simulated(options: argparse.Namespace, report: Report, case: Case, file: Path) -> None:
    """Replay the case's first complete run on the simulated GPU, as each schedule has it."""
    rows = [row for row in report.rows if row.case == case]
    recording = next((row for row in rows if row.is_complete), None)
    if recording is None:
        return
    data = yaml.safe_load(file.read_text()) | {"gpu": report.simulated_gpu}
    file = file.with_name(f"{case.name}-simulated.yaml")
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    simulation = SimulationOptions(
        gpu=report.simulated_gpu,
        gpus=1,
        sharing="overlapped" if case.mps else "time-sliced",
        strategy="beam-search",
        parameters={},
        problems=options.problems,
        in_flight=IN_FLIGHT // options.n,
        seed=0,
        speculation="auto",
        deployment=str(file),
        replay=options.out / f"{case.name}-{recording.schedule}",
    )
    _, scenario = scenario_of(simulation, {"deployment", "replay"})
    for row in rows:
        if time.monotonic() > options.end + END_S / 2:
            report.left_out.append(f"{case.name}, {row.schedule}, simulated: no time")
        else:
            row.simulated_s = simulate(scenario, row.schedule).wall_s / options.problems


def print_report(report: Report) -> None:
    """Print a row for each run, then what is missing."""
    table = table_of(
        f"GPU: {report.gpu}", "case", "schedule", "problems", "s", "s a problem",
        f"simulated {report.simulated_gpu}", "thoughts/s", "scores/s", "generator idle",
        "verifier idle", "J a problem", "trees as first", left_aligned={"case", "schedule"},
    )  # fmt: skip
    for row in report.rows:
        first = next(each for each in report.rows if each.case == row.case)
        both = row.trees.keys() & first.trees.keys()
        equal = sum(row.trees[problem] == first.trees[problem] for problem in both)
        get, count = row.measures.get, len(row.trees)
        wall_s = get("wall") or 0.0
        numbers = (
            wall_s,
            wall_s / count if count else None,
            row.simulated_s,
            wall_s and (get("generator_requests") or 0) / wall_s,
            wall_s and (get("verifier_requests") or 0) / wall_s,
            *(get(name) for name in ("generator_idle", "verifier_idle", "gpu_energy_per_problem")),
        )
        cells = ("" if number is None else f"{number:,.2f}" for number in numbers)
        solved = f"{count}{'' if row.is_complete else ', cut off'}"
        table.add_row(row.case.name, row.schedule, solved, *cells, f"{equal} of {len(both)}")
    console = Console(width=max(Console().width, 150))
    console.print(table)
    starts = (f"{name} {seconds:.0f} s" for name, seconds in report.starts_s.items())
    lines = [f"left out: {line}" for line in report.left_out]
    lines += [f"failed: {line}" for line in report.failures]
    for line in (*lines, f"starts: {', '.join(starts)}", report.machine):
        console.print(line, markup=False)


if __name__ == "__main__":
    main()
