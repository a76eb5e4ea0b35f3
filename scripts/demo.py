"""Solve the demo's problems four ways and compare two schedules; scripts/demo sets up and runs it.

The same held-out problems are solved greedily, by majority vote, by best-of-n and by beam search,
which the schedule lockstep then repeats. The engines start once, and each run finds empty caches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.choices import ScheduleName
from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.cli.ending import exit_code_of
from tts.lab.bench.single_run import prepare
from tts.lab.campaign import Campaign, carry_out
from tts.reports.console import say
from tts.reports.progress import Bars, BuildLines
from tts.runs.config import RunConfig
from tts.runs.statistics import share_with_interval
from tts.session.plan import Plan
from tts.session.result import RunProgress

N = 16
BEAM = {"n": N, "beam_width": 4}
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy, one sample": ("greedy", {}),
    f"majority vote of {N}": ("majority-vote", {"n": N}),
    f"best of {N}, by the verifier": ("best-of-n", {"n": N}),
    f"beam search, n={N}, width 4": ("beam-search", BEAM),
}
SCHEDULES: tuple[ScheduleName, ScheduleName] = ("decoupled", "lockstep")
QUESTION = "Compute (((12 + 30) / 6 + 8) * 4 - 11) / 7."


class Results(Bars):
    """The terminal, which shows the accuracy of each strategy as soon as it is known."""

    def __init__(self, folders: dict[str, Path]) -> None:
        """`folders` are those of the runs, by title."""
        super().__init__()
        self._folders = folders
        self._current: str | None = None

    def say(self, line: str) -> None:
        """See Observer; the bar has the title of its run."""
        if line not in self._folders:
            super().say(line)

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer."""
        super().began(run, title)
        self._current = title

    def ended(self) -> None:
        """See Observer."""
        super().ended()
        title, self._current = self._current, None
        if title in STRATEGIES and (self._folders[title] / "summary.json").exists():
            summary = summary_of(self._folders[title])
            share = share_with_interval(summary["accuracy"], summary["problems"])
            print(f"  {title:28}{share:>21}", flush=True)


def main() -> None:
    """Solve, compare, say what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=40, help="[40]")
    parser.add_argument("--seed", type=int, default=0, help="[0]")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each schedule [1]")
    parser.add_argument("--out", type=Path, help="folder of the runs [runs/demo-<time>]")
    options = parser.parse_args()
    if min(options.problems, options.rounds) < 1:
        parser.error("--problems and --rounds: at least 1")
    sys.exit(exit_code_of(lambda: demonstrate(options)))


def demonstrate(options: argparse.Namespace) -> None:
    """Build, solve, compare; raises a TtsError."""
    out: Path = options.out or paths.runs_dir() / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    with BuildLines() as lines:
        reports = build_engines(load_deployment("demo"), say=lines.say)
    if unverified := next((each.not_verified for each in reports if each.not_verified), None):
        say(f"The engines are not compared with transformers: {unverified}")

    def run(strategy: str, values: dict[str, Any], schedule: ScheduleName) -> RunConfig:
        return RunConfig(
            deployment_source="demo",
            dataset="demo",
            limit=options.problems,
            seed=options.seed,
            strategy=strategy,
            parameters=values,
            schedule=schedule,
        )

    runs = {
        title: (out / strategy, run(strategy, values, SCHEDULES[0]))
        for title, (strategy, values) in STRATEGIES.items()
    }
    compared = {SCHEDULES[0]: [out / "beam-search"], SCHEDULES[1]: list[Path]()}
    turns = [(number, name) for number in range(1, options.rounds + 1) for name in SCHEDULES]
    for number, schedule in turns[1:]:  # the first one is the beam search above
        folder = out / f"{schedule}-{number}"
        compared[schedule].append(folder)
        config = run("beam-search", BEAM, schedule)
        runs[f"beam search, {schedule}, round {number}"] = folder, config
    print(f"\n{options.problems} held-out problems (chains of whole-number operations):\n")
    sys.stdout.flush()
    with Results({title: folder for title, (folder, _) in runs.items()}) as observer:

        async def plans() -> dict[str, tuple[Plan, Path]]:
            return {
                title: (prepare(each, observer), place) for title, (place, each) in runs.items()
            }

        carry_out(Campaign(observer), plans(), out, f"scripts/demo --out {out}")
    summaries = {name: [summary_of(each) for each in there] for name, there in compared.items()}
    print(f"\n{textwrap.fill(comparison(summaries), 80, break_on_hyphens=False)}\n\nGo on with:\n")
    here = Path.cwd()
    there = out.relative_to(here) if out.is_relative_to(here) else out
    print(f"  .venv/bin/tts report {there}/* --open    # figures, every search tree")
    print(f'  .venv/bin/tts solve demo "{QUESTION}"')
    print("  .venv/bin/tts init --help    # models of your own")


def summary_of(folder: Path) -> dict[str, Any]:
    """The numbers of a run that has ended."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def comparison(runs: dict[ScheduleName, list[dict[str, Any]]]) -> str:
    """How the schedules compare, as far as their runs tell it."""
    if len({run["tree_digest"] for each in runs.values() for run in each}) != 1:
        return "The schedules gave different trees, which must not be: please report it."
    decoupled, lockstep = ([run["wall_s"] for run in runs[name]] for name in SCHEDULES)
    typical = statistics.median(lockstep) / statistics.median(decoupled)
    least, most = min(lockstep) / max(decoupled), max(lockstep) / min(decoupled)
    text = "Both schedules give the same trees; "
    if least <= 1:
        return f"{text}which is faster, these runs do not tell."
    between = f", {least:.1f} to {most:.1f} in {len(lockstep)} rounds" if len(lockstep) > 1 else ""
    return (
        f"{text}decoupled took {statistics.median(decoupled):.0f} s, lockstep, which solves one "
        f"problem at a time, {typical:.1f} times as long{between}."
    )


if __name__ == "__main__":
    main()
