"""What the runs of a study show: each cell's numbers over its rounds, compared with the base."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tts.runs.measured_run import MeasuredRun
from tts.runs.statistics import Difference, paired, quantile
from tts.runs.summary import read_summary

from .blocks import Ratio, ratios
from .cells import BASE, Cell, Step


@dataclass(frozen=True)
class RunResult:
    """One run of a cell."""

    folder: Path
    wall_s: float
    problems: int
    generated_tokens: int
    verifier_tokens: int
    """Of its verifier requests' prompts."""
    useful_tokens: int
    goodput: float | None
    """See `tts.runs.measures.Measures.goodput`."""
    latencies_s: tuple[float, ...]
    right: Mapping[str, bool]
    """By problem, where there is a reference."""
    scores: int
    """Scores that its searches asked for."""
    cached_scores: int
    """Of those, the ones that needed no request."""
    tree_digest: str
    """Of all of its trees and answers."""

    @property
    def problems_per_s(self) -> float:
        """Throughput."""
        return self.problems / self.wall_s

    @classmethod
    def read(cls, folder: Path) -> RunResult:
        """From a run's folder; raises RunError."""
        run = MeasuredRun.load(folder)
        measures = run.measures
        work = measures.run.work
        return cls(
            folder,
            measures.wall_s,
            len(measures.problems),
            measures.generated_tokens,
            work.verifier_tokens,
            measures.useful_tokens,
            measures.goodput,
            tuple(measures.use.latencies_s.values()),
            {problem.id: problem.right(run.rule) for problem in measures.judged()},
            work.verifier_calls + work.cached_scores,
            work.cached_scores,
            read_summary(folder).tree_digest,
        )


@dataclass(frozen=True)
class CellResult:
    """A cell over all rounds."""

    cell: Cell
    runs: tuple[RunResult, ...]
    """By round."""
    speed: Ratio
    """Its problems per second over the base's."""
    latency: Ratio | None
    """Its median time per problem over the base's; None where a run's times are not known."""

    @property
    def problems_per_s(self) -> float:
        """The geometric mean over rounds, of which `speed` is the ratio to the base's."""
        return math.exp(fmean(math.log(run.problems_per_s) for run in self.runs))

    @property
    def tokens_per_problem(self) -> float:
        """Generated tokens."""
        return self._sum("generated_tokens") / self._sum("problems")

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens."""
        return self._sum("generated_tokens") / self._sum("wall_s")

    @property
    def useful_tokens_per_s(self) -> float:
        """Tokens on the paths of completions."""
        return self._sum("useful_tokens") / self._sum("wall_s")

    @property
    def goodput(self) -> float | None:
        """The mean over rounds."""
        found = [run.goodput for run in self.runs if run.goodput is not None]
        return fmean(found) if found else None

    @property
    def latency_p50_s(self) -> float | None:
        """Median time from the start of a problem to its answer."""
        return quantile((each for run in self.runs for each in run.latencies_s), 0.5)

    @property
    def right(self) -> dict[str, bool]:
        """Of all rounds' problems, whether the answer is right."""
        return {name: right for run in self.runs for name, right in run.right.items()}

    @property
    def accuracy(self) -> float | None:
        """Share of the problems with a reference that are right."""
        return fmean(self.right.values()) if self.right else None

    def more_right_than(self, other: CellResult) -> Difference | None:
        """The paired difference of accuracies; None without problems that both have."""
        mine, others = self.right, other.right
        common = sorted(mine.keys() & others.keys())
        return paired([mine[name] - others[name] for name in common])

    def _sum(self, name: str) -> float:
        return math.fsum(getattr(run, name) for run in self.runs)


def read_results(cells: Sequence[Cell], rounds: int, folder: Path) -> dict[str, CellResult]:
    """Every cell's result by its name, from `folder`/CELL-ROUND; raises RunError."""
    runs = {
        cell.name: tuple(
            RunResult.read(folder / Step(cell, number).folder) for number in range(1, rounds + 1)
        )
        for cell in cells
    }
    return compared(cells, runs)


def compared(
    cells: Sequence[Cell], runs: Mapping[str, tuple[RunResult, ...]]
) -> dict[str, CellResult]:
    """Every cell with its runs by round, compared with the base: each round on its own problems."""
    speeds = ratios({name: [run.problems_per_s for run in row] for name, row in runs.items()}, BASE)
    medians = {name: [quantile(run.latencies_s, 0.5) for run in row] for name, row in runs.items()}
    known = {name: [each for each in row if each is not None] for name, row in medians.items()}
    latencies = ratios(known, BASE) if known == medians else {}
    return {
        cell.name: CellResult(cell, runs[cell.name], speeds[cell.name], latencies.get(cell.name))
        for cell in cells
    }
