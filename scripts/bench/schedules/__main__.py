"""Measure the schedules side by side: wall times, distance from the engines' limit, speculation.

Two pairs of engines: `demo`, the tiny demo pair (mostly the cost of our own code), and `heavy`, 25M
and 100M parameters of random weights that do the work of the demo pair's recorded run (mostly the
engines). Every run has fresh engines, whose start is not counted, and the event loop of a session;
what is compared is interleaved, forwards and backwards in turn, and compared within a round.

walls       each schedule's wall time over decoupled's; CPU time by process; what was in flight when
efficiency  decoupled's useful work on each engine alone without dependencies, and the limit
latency     a problem alone on the engines, speculation off and auto; and 32 problems at a time

Several kinds of server, or several checkouts, take turns, and are compared with the first within
each round. A checkout has an environment of its own in .venv; the bench is this one's.

    scripts/run bench.schedules                                     # everything
    scripts/run bench.schedules --pair heavy --problems 64 --rounds 1 --part walls --part efficiency
    scripts/run bench.schedules --part walls --server triton embedded --rounds 4
    scripts/run bench.schedules --part walls --checkout ../before --rounds 4

Ctrl-C prints what there is; the JSON file is written after every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Self, get_args

from rich.console import Console

from scripts.bench.schedules.tables import tables
from scripts.bench.schedules.trials import (
    Result,
    Settings,
    Trial,
    Variant,
    left_s,
    say,
    trials_of,
)
from scripts.programs import ROOT
from tts.build import paths
from tts.build.server_kinds import ServerKind
from tts.runs.folder import write_json

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
    parser.add_argument("--server", choices=get_args(ServerKind), nargs="+", default=["triton"])
    parser.add_argument(
        "--checkout", type=Path, action="append", default=[], help="another one; may be repeated"
    )
    parser.add_argument("--problems", type=int, help=f"of each pair; {PROBLEMS}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the JSON file; a new one under runs/")
    arguments = parser.parse_args()
    variants = variants_of(arguments.checkout, arguments.server)
    if missing := [each.python for each in variants if not each.python.is_file()]:
        parser.error(f"there is no {missing[0]}: a checkout needs an environment (scripts/setup)")
    out = arguments.out or paths.runs_dir() / f"bench-schedules-{datetime.now():%Y%m%d-%H%M%S}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    head = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "environment": environment([ROOT, *arguments.checkout]),
    }

    def save() -> None:
        kept = [dataclasses.asdict(result) for result in results]
        write_json(out, head | {"results": kept})

    failed: str | int = 0
    try:
        measure(arguments, variants, results, save)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is short
        say("interrupted")
        failed = 130
    except WorkerEnded as error:
        failed = str(error)
    finally:
        save()
    console = Console(width=max(Console().width, 150))
    if results:
        console.print(tables(results))
    console.print(f"raw results: {out}", style="dim", highlight=False, soft_wrap=True)
    sys.exit(failed)


def variants_of(checkouts: Sequence[Path], servers: Sequence[ServerKind]) -> list[Variant]:
    """Each kind of server in each checkout, this one first."""
    places = [("this checkout", Path(sys.executable))]
    places += [(str(each), each.absolute() / ".venv/bin/python") for each in checkouts]
    return [
        Variant(f"{place}, {server}" if checkouts else server, python, server)
        for place, python in places
        for server in servers
    ]


def measure(
    arguments: argparse.Namespace,
    variants: Sequence[Variant],
    results: list[Result],
    save: Callable[[], None],
) -> None:
    """Do all trials, adding to `results`, and saying how long the others may take."""
    parts = arguments.part or PARTS
    pairs = ("demo", "heavy") if arguments.pair == "both" else (arguments.pair,)
    count = {pair: arguments.problems or PROBLEMS[pair] for pair in pairs}
    rounds = 1 if arguments.problems == 1 else arguments.rounds
    trials = [
        (trial, variant)
        for pair in pairs
        for trial in trials_of(pair, parts, count[pair], rounds)
        for variant in (variants[::-1] if trial.turn % 2 else variants)
    ]
    with ExitStack() as stack:
        workers = {}
        for variant in variants:
            settings = Settings(
                variant.server,
                pairs,
                max(count.values()),
                arguments.n,
                arguments.width,
                arguments.seed,
            )
            workers[variant] = stack.enter_context(Worker(variant, settings))
        began = time.monotonic()
        for done, (trial, variant) in enumerate(trials):
            left = left_s([each for each, _ in trials], done, time.monotonic() - began)
            where = f"; {variant.name}" if len(variants) > 1 else ""
            say(f"[{done + 1}/{len(trials)}] {trial.name}{where}; about {left / 60:.0f} min left")
            measured = workers[variant].measure(trial)
            results.append(Result(trial, measured, variant.name))
            say(f"    {measured['wall_s']:.1f} s")
            save()


class WorkerEnded(Exception):
    """A worker has ended before it had answered; it has said why."""


class Worker:
    """A process that does the trials of one variant, and nothing while others do theirs."""

    def __init__(self, variant: Variant, settings: Settings) -> None:
        """Start it, and wait until it has built its engines; raises WorkerEnded."""
        self._name = variant.name
        self._process = subprocess.Popen(
            [variant.python, "-m", "scripts.bench.schedules.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._ask(dataclasses.asdict(settings))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._end()

    def measure(self, trial: Trial) -> dict[str, Any]:
        """What was measured; raises WorkerEnded."""
        return self._ask(dataclasses.asdict(trial))

    def _ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise WorkerEnded(f"The worker of {self._name} has ended.")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _end(self) -> None:
        self._process.communicate()  # it ends with its input


def environment(checkouts: Sequence[Path]) -> dict[str, object]:
    """What the numbers depend on."""
    cpu = platform.processor()
    if (info := Path("/proc/cpuinfo")).is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commits": {str(each): _commit(each) for each in checkouts},
        "time": datetime.now().isoformat(timespec="seconds"),
        "load": os.getloadavg(),
    }


def _commit(checkout: Path) -> str | None:
    git = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None


if __name__ == "__main__":
    main()
