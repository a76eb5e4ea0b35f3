"""Solve the demo's problems three ways and compare two schedules; scripts/demo sets up and runs it.

Greedy, majority vote and beam search solve the same held-out problems on one Triton server. Then
beam search solves some of them under the schedules lockstep and decoupled in turn. The engines'
prefix caches are emptied before each run, so that none profits from the one before. Engines that
are not built yet are built first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tts.build.errors import TtsError
from tts.lab.bench.single_run import plan_of, problems_of
from tts.lab.campaign import Campaign
from tts.lab.observer import Observer
from tts.reports.runs import accuracy_cell
from tts.runs.compare import read_rows
from tts.runs.config import RunConfig
from tts.runs.groups import GroupConfig, Member, create_group, write_comparison
from tts.runs.summary import Summary, read_summary
from tts.scheduling.schedules import ScheduleName
from tts.session import RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan
from tts.session.run import open_run

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 80
N = 16
BEAM = {"n": N, "beam_width": 4}
STRATEGIES: dict[str, tuple[str, dict[str, int]]] = {
    "greedy": ("greedy", {}),
    "majority": ("self-consistency", {"n": N}),
    "search": ("beam-search", BEAM),
}
"""The strategy and the parameters of each of the three runs, by its folder."""
SCHEDULES: tuple[ScheduleName, ...] = ("lockstep", "decoupled")
ROUNDS = 3
ROUND_PROBLEMS = 12
"""Problems of each run of a round, at most: the first ones."""


@dataclass
class Results:
    """What the runs gave."""

    runs: dict[str, Summary]
    """By the names of STRATEGIES."""
    rounds: dict[str, list[Summary]]
    """By schedule."""


class OneLine(Observer):
    """Progress in one line of a terminal, which is overwritten; elsewhere a line for each run."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._title = ""
        self._progress: RunProgress | None = None

    def say(self, line: str) -> None:
        """Show what is built and what goes wrong; where the server is has no interest here."""
        if not line.startswith(("Starting ", "Ready: ")):
            self._over(f"{line}\n" if self._terminal else line)

    def began(self, run: RunProgress, title: str) -> None:
        """A run begins."""
        self._title, self._progress = title, run
        self._over(title)

    def changed(self) -> None:
        """Show how far it is."""
        if self._terminal and (run := self._progress):
            self._over(f"{self._title}: {run.done} of {run.total}")

    def clear(self) -> None:
        """Leave nothing of it."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _over(self, text: str) -> None:
        self.clear()
        end = "" if self._terminal else "\n"
        print(f"[demo] {text}", end=end, file=sys.stderr, flush=True)


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
    folder = options.out or ROOT / "runs" / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    observer = OneLine()
    try:
        results = solve(folder.resolve(), options.problems, options.seed, observer)
    except TtsError as error:
        observer.clear()
        print(f"error: {error.message}", file=sys.stderr)
        print(*[error.hint] if error.hint else [], sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)
    observer.clear()
    print("\n".join(said(results, options.problems, options.seed)))
    print(f"\nFigures and search trees: {command(folder)}")


def solve(folder: Path, problems: int, seed: int, observer: OneLine) -> Results:
    """All runs, in a folder that `tts report` reads as one comparison; raises a TtsError."""
    plans = {name: plan(name, "decoupled", problems, seed, observer) for name in STRATEGIES}
    members = [
        Member(name, {each.strategy.name: each.strategy.vote}, each.strategy.parameters)
        for name, each in plans.items()
    ]
    create_group(folder, GroupConfig(plans["greedy"].config, members).to_json())
    few = min(problems, ROUND_PROBLEMS)
    rounds = {name: plan("search", name, few, seed, observer) for name in SCHEDULES}
    turns = [(name, number) for number in range(1, ROUNDS + 1) for name in SCHEDULES]
    work = [
        (f"{each.strategy.name}, {problems} problems", each, folder / name)
        for name, each in plans.items()
    ]
    for name, number in turns:
        title = f"beam-search, {name}, round {number} of {ROUNDS}"
        work.append((title, rounds[name], place(folder, name, number)))
    interruptible(run(work, observer), observer.say)
    write_comparison(folder, {"rows": [row.to_json() for row in read_rows(folder)[0]]})
    return Results(
        {name: read_summary(folder / name) for name in plans},
        {
            name: [read_summary(place(folder, name, k)) for k in range(1, ROUNDS + 1)]
            for name in SCHEDULES
        },
    )


def plan(name: str, schedule: ScheduleName, problems: int, seed: int, observer: Observer) -> Plan:
    """One of the runs; the engines are built if they are not."""
    strategy, parameters = STRATEGIES[name]
    config = RunConfig(
        deployment_source="demo",
        dataset="demo",
        limit=problems,
        seed=seed,
        strategy=strategy,
        parameters=parameters,
        schedule=schedule,
    )
    return plan_of(*problems_of(config), say=observer.say)


def place(folder: Path, schedule: str, number: int) -> Path:
    """The folder of a run of a round."""
    return folder / "rounds" / f"{number}-{schedule}"


async def run(work: Sequence[tuple[str, Plan, Path]], observer: OneLine) -> None:
    """One run after the other on one server, whose caches none has warmed for the next."""
    observer.say("starting Triton")
    async with Campaign(observer) as campaign:
        for title, each, folder in work:
            with open_run(each, folder) as begun:
                await campaign.run(begun, title)


def said(results: Results, problems: int, seed: int) -> list[str]:
    """The results in lines of the terminal."""
    runs = results.runs
    greedy, majority, search = (runs[name] for name in STRATEGIES)
    cells = {name: accuracy_cell(runs[name].accuracy, problems) for name in runs}
    names = {
        "greedy": "greedy, one sample",
        "majority": f"majority vote of {N}",
        "search": f"beam search, n={N}, width {BEAM['beam_width']}",
    }
    table = [f"  {names[name]:26}{cells[name]:>13}" for name in names]
    return [
        f"{problems} held-out problems (chains of whole-number operations), seed {seed}:",
        "",
        *table[:2],
        f"{table[2]}  trees {search.tree_digest[:16]}",
        "",
        *sentence(
            f"Search with the verifier: {percent(search)} for {percent(majority)} by majority "
            f"vote of as many samples and {percent(greedy)} by one greedy sample."
        ),
        *sentence(schedules(results)),
    ]


def schedules(results: Results) -> str:
    """How the schedules compare, as far as the rounds tell it."""
    digests = {each.tree_digest for runs in results.rounds.values() for each in runs}
    if len(digests) != 1:
        return "The schedules gave different trees, which must not be: please report it."
    times = {name: [each.wall_s for each in runs] for name, runs in results.rounds.items()}
    lockstep, decoupled = (times[name] for name in SCHEDULES)
    same = "Both schedules give the same trees"
    how = f"({ROUNDS} rounds of {results.rounds['lockstep'][0].problems} problems in turn)"
    least, most = min(lockstep) / max(decoupled), max(lockstep) / min(decoupled)
    if least <= 1:
        return f"{same}; which is faster, these rounds do not tell on this machine now {how}."
    typical = statistics.median(lockstep) / statistics.median(decoupled)
    return (
        f"{same}; decoupled is {typical:.1f} times as fast as lockstep, {least:.1f} to {most:.1f} "
        f"{how}."
    )


def percent(summary: Summary) -> str:
    """A run's accuracy; the decimal only if there is one."""
    return "none" if summary.accuracy is None else f"{round(100 * summary.accuracy, 1):g}%"


def sentence(text: str) -> list[str]:
    """A sentence in lines that fit a terminal."""
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def command(folder: Path) -> str:
    """What opens the page, from the repository's folder."""
    near = folder.resolve()
    shown = near.relative_to(ROOT) if near.is_relative_to(ROOT) else near
    return f".venv/bin/tts report {shown} --open"


if __name__ == "__main__":
    main()
