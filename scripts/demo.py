"""Solve the demo's problems four ways and compare two schedules; scripts/demo sets up and runs it.

`tts bench` solves the same held-out problems greedily, by majority vote, by best-of-n and by beam
search. Then beam search solves them under the schedules lockstep and decoupled in turn, on new
engines each time, so that none profits from the run before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.runs.statistics import share_with_interval

TTS = [sys.executable, "-c", "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"]
N = 16
SEARCH = ("--n", N, "--set", "beam_width=4", "--strategy", "beam-search")
STRATEGIES = {
    "greedy, one sample": ("greedy", ("--strategy", "greedy")),
    f"majority vote of {N}": ("majority-vote", ("--strategy", "majority-vote", "--n", N)),
    f"best of {N}, by the verifier": ("best-of-n", ("--strategy", "best-of-n", "--n", N)),
    f"beam search, n={N}, width 4": ("beam-search", SEARCH),
}
SCHEDULES = ("lockstep", "decoupled")
ROUNDS = 2


def main() -> None:
    """Solve, compare, say what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=40, help="[40]")
    parser.add_argument("--seed", type=int, default=0, help="[0]")
    parser.add_argument("--out", type=Path, help="folder of the runs [runs/demo-<time>]")
    options = parser.parse_args()
    if options.problems < 1:
        parser.error("--problems: at least 1")
    folder = options.out or paths.runs_dir() / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    tts("build-engines", "demo")
    runs = [
        solved(folder / name, options.problems, options.seed, *words)
        for name, words in STRATEGIES.values()
    ]
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEDULES}
    for number in range(1, ROUNDS + 1):
        for name in SCHEDULES:
            out = folder / "rounds" / f"{number}-{name}"
            words = (*SEARCH, "--schedule", name)
            rounds[name].append(solved(out, options.problems, options.seed, *words))
    print(f"\n{options.problems} held-out problems (chains of whole-number operations):\n")
    for name, run in zip(STRATEGIES, runs, strict=True):
        print(f"  {name:28}{share_with_interval(run['accuracy'], run['problems']):>21}")
    say(compared(rounds, options.problems))
    folders = " ".join(str(folder / name) for name, _ in STRATEGIES.values())
    print(f"\nFigures and search trees: .venv/bin/tts report {folders} --open")


def solved(out: Path, problems: int, seed: int, *words: object) -> dict[str, Any]:
    """The summary of a run of `tts bench`."""
    tts("bench", "demo", "--limit", problems, "--seed", seed, "--out", out, *words)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary


def tts(*words: object) -> None:
    """Run a command, of which errors are shown; end with it if it fails."""
    print(f"[demo] tts {' '.join(map(str, words))}", file=sys.stderr, flush=True)
    process = subprocess.run(
        [*TTS, "--quiet", *map(str, words)], stdout=subprocess.DEVNULL, check=False
    )
    if process.returncode:
        sys.exit(process.returncode)


def compared(rounds: dict[str, list[dict[str, Any]]], problems: int) -> str:
    """How the schedules compare, as far as the rounds tell it."""
    digests = {run["tree_digest"] for runs in rounds.values() for run in runs}
    if len(digests) != 1:
        return "The schedules gave different trees, which must not be: please report it."
    lockstep, decoupled = ([run["wall_s"] for run in rounds[name]] for name in SCHEDULES)
    least, most = min(lockstep) / max(decoupled), max(lockstep) / min(decoupled)
    typical = statistics.median(lockstep) / statistics.median(decoupled)
    how = f"{ROUNDS} rounds of {problems} problems in turn"
    if least <= 1:
        return f"Both schedules give the same trees; which is faster, {how} do not tell here."
    return (
        f"Both schedules give the same trees; decoupled is {typical:.1f} times as fast as "
        f"lockstep, one problem at a time: {least:.1f} to {most:.1f} ({how})."
    )


def say(text: str) -> None:
    """A sentence in lines that fit a terminal."""
    print(f"\n{textwrap.fill(text, 80, break_on_hyphens=False)}")


if __name__ == "__main__":
    main()
