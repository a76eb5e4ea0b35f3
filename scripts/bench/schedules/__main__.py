"""Measure the schedules side by side: wall times, distance from the engines' limit, speculation.

Two pairs of engines, one thread each: `demo`, the tiny demo pair (mostly the cost of our own code),
and `heavy`, 25M and 100M parameters of random weights that do the work of the demo pair's recorded
run (mostly the engines). Every run has a fresh server, whose start is not counted; what is compared
is interleaved, forwards and backwards in turn, and compared within a round.

walls       each schedule's wall time over decoupled's; CPU per thought; what was in flight when
efficiency  decoupled's useful work on each engine alone without dependencies: the limit
latency     a problem alone on the server, speculation off and auto; and 32 problems at a time

    scripts/run bench.schedules                                     # everything
    scripts/run bench.schedules --pair heavy --problems 64 --rounds 1 --part walls --part efficiency

Ctrl-C prints what there is; the JSON file is written after every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import platform
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rich.console import Console

from scripts.bench.schedules import pairs, runs
from scripts.bench.schedules.tables import tables
from scripts.bench.schedules.trials import Result, Trial, left_s, trials_of
from scripts.programs import ROOT
from tts.build import paths
from tts.build.errors import TtsError
from tts.runs.folder import write_json
from tts.session.plan import Plan

PARTS = ("walls", "efficiency", "latency")
PROBLEMS = {"demo": 64, "heavy": 24}
PACKAGES = ("openvino", "openvino-genai", "tritonclient", "grpcio", "numpy")


def main() -> None:
    """Measure what the command line asks for, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=("demo", "heavy", "both"), default="both")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated; all")
    parser.add_argument("--problems", type=int, help=f"of each pair; {PROBLEMS}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="also where the CPU time goes")
    parser.add_argument("--out", type=Path, help="the JSON file; a new one under runs/")
    arguments = parser.parse_args()
    out = arguments.out or paths.runs_dir() / f"bench-schedules-{datetime.now():%Y%m%d-%H%M%S}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    head = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "environment": environment(),
    }

    def save() -> None:
        kept = [dataclasses.asdict(result) for result in results]
        write_json(out, head | {"results": kept})

    failed, interrupted = None, False
    try:
        measure(arguments, results, save)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is short
        say("interrupted")
        interrupted = True
    except TtsError as error:
        failed = error
    finally:
        save()
    console = Console(width=max(Console().width, 100))
    if results:
        console.print(tables(results))
    console.print(f"raw results: {out}", style="dim", highlight=False, soft_wrap=True)
    if interrupted:
        sys.exit(130)
    if failed:
        sys.exit(f"error: {failed}" + (f"\n{failed.hint}" if failed.hint else ""))


def measure(arguments: argparse.Namespace, results: list[Result], save: Callable[[], None]) -> None:
    """Do all trials, adding to `results`."""
    parts = arguments.part or PARTS
    chosen = ("demo", "heavy") if arguments.pair == "both" else (arguments.pair,)
    count = {pair: arguments.problems or PROBLEMS[pair] for pair in chosen}
    rounds = 1 if arguments.problems == 1 else arguments.rounds
    trials = [trial for pair in chosen for trial in trials_of(pair, parts, count[pair], rounds)]
    if trials or arguments.profile:
        with tempfile.TemporaryDirectory() as folder:
            most = max(count.values())
            plans = prepare(arguments, "heavy" in chosen, most, Path(folder) / "recorded")
            run_trials(trials, plans, results, save)
            if arguments.profile:
                profile = runs.profiled(plans["demo"], count.get("demo", most))
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def prepare(
    arguments: argparse.Namespace, heavy: bool, problems: int, recorded: Path
) -> dict[str, Plan]:
    """The plans by pair, with engines built; the heavy one replays a run recorded in `recorded`."""
    demo = pairs.demo_plan(problems, arguments.n, arguments.width, arguments.seed, say)
    plans = {"demo": demo}
    if heavy:
        say(f"recording the demo pair's run of {problems} problems")
        pairs.record(demo, recorded)
        plans["heavy"] = pairs.heavy_plan(recorded, demo, say)
    return plans


def run_trials(
    trials: list[Trial], plans: dict[str, Plan], results: list[Result], save: Callable[[], None]
) -> None:
    """Do the trials in order, saying how long the others may take."""
    useful: runs.Useful | None = None
    began = time.monotonic()
    for done, trial in enumerate(trials):
        left = left_s(trials, done, time.monotonic() - began)
        say(f"[{done + 1}/{len(trials)}] {trial.name}; about {left / 60:.0f} min left")
        plan = plans[trial.pair]
        if trial.what == "search":
            measured, answered = runs.run_search(plan, trial)
            useful = answered if trial.schedule == "decoupled" else useful
        else:
            assert useful is not None  # such a trial comes after its search
            measured = runs.run_saturated(plan, trial, useful)
        results.append(Result(trial, measured))
        say(f"    {measured['wall_s']:.1f} s")
        save()


def environment() -> dict[str, object]:
    """What the numbers depend on."""
    cpu = platform.processor()
    if (info := Path("/proc/cpuinfo")).is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": commit or None,
        "time": datetime.now().isoformat(timespec="seconds"),
        "load": os.getloadavg(),
    }


def say(line: str) -> None:
    """Progress."""
    print(f"[bench] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
