"""Measure the schedules side by side: wall times, processor time, distance from the engines' limit.

Every run is a `tts bench` of its own, with fresh engines, whose start is not counted in its wall
time. What is compared takes turns, forwards and backwards, and is compared within a round. Of
several servers, deployments or checkouts each is compared with the first. A checkout has an
environment of its own in .venv; since only its commands are used, its insides may differ.

--limit asks `tts tune` how fast each engine can do the requests of decoupled's first run, one
engine alone and nothing to wait for: the limit is the slower one's time over decoupled's wall time.

    scripts/run bench.schedules
    scripts/run bench.schedules --server triton embedded --rounds 3 --limit
    scripts/run bench.schedules --schedule decoupled --checkout ../before --rounds 6

Ctrl-C prints what there is; the JSON file is written after every run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from scripts.bench.common import machine, say, spread_of, table_of
from scripts.programs import TTS

TUNE_S = 30
"""Seconds in which `tts tune` measures both engines."""
SCHEDULES = ("lockstep", "batched", "alternating", "decoupled")


@dataclass(frozen=True)
class Variant:
    """Where schedules are compared: in the environment of a checkout, on a kind of server."""

    deployment: str
    server: str
    checkout: Path | None

    @property
    def name(self) -> str:
        """In words."""
        place = f", {self.checkout}" if self.checkout else ""
        return f"{self.deployment}, {self.server}{place}"

    def tts(self, *arguments: object) -> list[str]:
        """A command of this variant."""
        python = self.checkout.absolute() / ".venv/bin/python" if self.checkout else sys.executable
        return [str(python), "-c", TTS, *map(str, arguments)]


@dataclass(frozen=True)
class Run:
    """What came of one run."""

    variant: str
    schedule: str
    turn: int
    wall_s: float
    cpu_s: float
    """CPU time of all processes, starts included."""
    digest: str


def main() -> None:
    """Measure what the command line asks for, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deployment", nargs="+", default=["demo"])
    parser.add_argument("--server", choices=("triton", "embedded"), nargs="+", default=["triton"])
    parser.add_argument("--checkout", type=Path, action="append", default=[], help="another one")
    parser.add_argument("--schedule", choices=SCHEDULES, nargs="+", default=SCHEDULES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--limit", action="store_true", help="measure the engines alone, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every run")
    options = parser.parse_args()
    variants = [
        Variant(deployment, server, checkout)
        for deployment in options.deployment
        for checkout in (None, *options.checkout)
        for server in options.server
    ]
    runs: list[Run] = []
    limits: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tts-schedules-") as folder:
        try:
            for variant in variants:
                subprocess.run(
                    variant.tts("build-engines", variant.deployment, "--no-verify"), check=True
                )
            for run in measured(variants, options, Path(folder)):
                runs.append(run)
                if options.json:
                    document = {"machine": machine(), "runs": [asdict(each) for each in runs]}
                    options.json.write_text(json.dumps(document, indent=1))
            if options.limit:
                limits = {each.name: limit_s(each, Path(folder)) for each in variants}
        except KeyboardInterrupt:
            say("interrupted")
    print_tables(runs, limits, variants[0].name)


def measured(
    variants: Sequence[Variant], options: argparse.Namespace, folder: Path
) -> Iterator[Run]:
    """Every schedule of every variant in every round; the first of decoupled's runs are kept."""
    trials = [(variant, schedule) for schedule in options.schedule for variant in variants]
    for turn in range(options.rounds):
        for variant, schedule in trials[:: -1 if turn % 2 else 1]:
            out = folder / variant.name.replace("/", "_") / f"{schedule}-{turn}"
            words = ["bench", variant.deployment, "--server", variant.server, "--out", out]
            words += ["--limit", options.problems, "--n", options.n, "--set", "beam_width=4"]
            words += ["--strategy", "beam-search", "--schedule", schedule]
            cpu_s = finished(variant.tts(*words))
            summary = json.loads((out / "summary.json").read_text())
            run = Run(
                variant.name, schedule, turn, summary["wall_s"], cpu_s, summary["tree_digest"]
            )
            say(f"round {turn + 1}: {variant.name}, {schedule}: {run.wall_s:.1f} s")
            yield run


def finished(command: Sequence[str]) -> float:
    """Processor seconds of a command and of all that it has started; ends the program if it fails.

    What others take of the machine meanwhile is in its wall time, not here.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            errors.seek(0)
            sys.exit(f"{' '.join(command[3:])} failed:\n{errors.read().decode()[-3000:]}")
    return usage.ru_utime + usage.ru_stime


def limit_s(variant: Variant, folder: Path) -> float:
    """Seconds that the slower engine needs for the requests of decoupled's first run."""
    run = folder / variant.name.replace("/", "_") / "decoupled-0"
    out = run.with_name("tuned")
    words = ["tune", variant.deployment, "--run", run, "--server", variant.server, "--out", out]
    words += ["--seconds", TUNE_S]
    finished(variant.tts(*words))
    engines = json.loads((out / "tune.json").read_text())["engines"]
    alone: list[float] = [
        engine["requests"] / max(level["requests_per_s"] for level in engine["levels"])
        for engine in engines.values()
    ]
    return max(alone)


def print_tables(runs: Sequence[Run], limits: dict[str, float], first: str) -> None:
    """A row for each schedule of each variant, against decoupled and against the first variant."""
    table = table_of(
        "wall time", "variant", "schedule", "rounds", "wall s", "CPU s", "over decoupled",
        "over the first", left_aligned={"variant", "schedule"},
    )  # fmt: skip
    by_key = {(run.variant, run.schedule, run.turn): run for run in runs}
    for variant, schedule in dict.fromkeys((run.variant, run.schedule) for run in runs):
        own = [run for run in runs if (run.variant, run.schedule) == (variant, schedule)]

        def over(variant: str, schedule: str, own: Sequence[Run] = own) -> str:
            ratios = [
                run.wall_s / other.wall_s
                for run in own
                if (other := by_key.get((variant, schedule, run.turn))) and other is not run
            ]
            return spread_of(ratios, 2)

        walls, cpu = [run.wall_s for run in own], [run.cpu_s for run in own]
        table.add_row(
            *(variant, schedule, str(len(own)), spread_of(walls, 1), spread_of(cpu, 1)),
            *(over(variant, "decoupled"), over(first, schedule)),
        )
    console = Console(width=max(Console().width, 130))
    console.print(table)
    for variant, limit in limits.items():
        walls = [r.wall_s for r in runs if (r.variant, r.schedule) == (variant, "decoupled")]
        shares = [limit / wall for wall in walls]
        console.print(f"{variant}: limit {limit:.1f} s, limit / decoupled {spread_of(shares, 2)}")
    by_deployment: dict[str, set[str]] = {}
    for run in runs:
        by_deployment.setdefault(run.variant.partition(",")[0], set()).add(run.digest)
    same = all(len(digests) == 1 for digests in by_deployment.values())
    console.print(f"trees identical in all runs: {'yes' if same else 'NO'}; {machine()}")


if __name__ == "__main__":
    main()
