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
import asyncio
import dataclasses
import importlib.metadata
import os
import platform
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import yaml
from msgspec.structs import replace
from rich.console import Console

from scripts.bench.schedules import runs
from scripts.bench.schedules.tables import tables
from scripts.bench.schedules.trials import Result, Trial, left_s, trials_of
from scripts.programs import ROOT
from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import TtsError
from tts.build.random_checkpoint import make_random_checkpoint, size_of
from tts.build.spec import Deployment, load_deployment
from tts.datasets.load import load_problems
from tts.lab.bench.single_run import run_plan
from tts.lab.observer import Observer
from tts.prompting import Models
from tts.runs.config import RunConfig
from tts.runs.folder import write_json
from tts.runs.replay import Replay, open_source
from tts.session import AsyncSession, RunProgress
from tts.session.plan import Plan
from tts.session.run import open_run
from tts.session.strategy import choose

HEAVY = "bench-heavy"
SIZES = {"generator": "25M", "verifier": "100M"}
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
    demo = demo_plan(problems, arguments.n, arguments.width, arguments.seed)
    plans = {"demo": demo}
    if heavy:
        say(f"recording the demo pair's run of {problems} problems")
        record(demo, recorded)
        plans["heavy"] = heavy_plan(recorded, demo)
    return plans


def demo_plan(problems: int, n: int, width: int, seed: int) -> Plan:
    """Beam search on the demo pair, its engines built."""
    deployment = load_deployment("demo")
    build_engines(deployment, verify=False, say=say)
    return Plan(
        RunConfig(deployment_source="demo", dataset="demo", limit=problems, seed=seed),
        deployment,
        tuple(load_problems("demo", limit=problems, seed=seed)),
        choose("beam-search", deployment, {"n": n, "beam_width": width}),
    )


def heavy_plan(recorded: Path, demo: Plan) -> Plan:
    """The recorded run of the demo pair replayed on a pair of 25M and 100M random weights."""
    file = _heavy_deployment(demo.deployment)
    deployment = load_deployment(file)
    build_engines(deployment, verify=False, say=say)
    source = open_source(recorded)
    models = source.limited(Models.load(deployment))
    return Plan(
        replace(demo.config, deployment_source=str(file)),
        deployment,
        demo.problems,
        demo.strategy,
        context=models.deployment.generator.max_seq_len,
        replay=Replay(source.script(models, demo.problems), source.description),
    )


def record(plan: Plan, folder: Path) -> None:
    """An ordinary run, kept in `folder`, for the replay."""
    session = AsyncSession(plan.deployment)
    progress = RunProgress(len(plan.problems))
    with open_run(plan, folder) as run:
        asyncio.run(run_plan(session, run, Observer(), progress))


def _heavy_deployment(demo: Deployment) -> Path:
    """The deployment file of the heavy pair: the demo pair's, but for name and checkpoints.

    Lengths, policies and pools are those of the demo pair, so that the same requests fit. Both
    engines are fp32: it runs on any CPU, and on the recorded work the two need about equal time.
    """
    folder = paths.built_dir(HEAVY)
    folder.mkdir(parents=True, exist_ok=True)
    fields = demo.model_dump(mode="json", exclude_none=True)
    fields["name"] = HEAVY
    for seed, (role, size) in enumerate(SIZES.items()):
        checkpoint = folder / "checkpoints" / f"{role}-{size}"
        if not checkpoint.is_dir():
            say(f"making {checkpoint}")
            checkpoint.parent.mkdir(exist_ok=True)
            # made under another name first: one that is cut short is not taken for a whole one
            part = checkpoint.with_name(f"{checkpoint.name}.part")
            tokenizer = fields[role]["checkpoint"]
            shutil.rmtree(part, ignore_errors=True)
            make_random_checkpoint(
                part, tokenizer=Path(tokenizer), parameters=size_of(SIZES[role]), seed=seed
            )
            part.rename(checkpoint)
        fields[role] |= {"checkpoint": str(checkpoint), "precision": "fp32", "threads": 1}
    file = folder / f"{HEAVY}.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return file


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
