"""What the runs of a study show: each cell's numbers over its rounds, compared with the base.

The rounds are a randomised complete block design, which is compared on a logarithmic scale. Every
cell runs once in each round, on the round's own problems. A round's difficulty, and how fast the
machine was during it, affect all of its cells alike and cancel. The rest is noise, whose size is
estimated from all cells together: from few rounds of many cells as well as from many rounds of few.
(R. A. Fisher, The Design of Experiments, 1935; any textbook has the formulas as the two-way
analysis of variance without replication.)

The cells are many and the best of them is advised, so intervals are those of all cells together:
in at most 5% of studies one of them misses the truth (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tts.runs.run import Run
from tts.runs.statistics import Gain, gain_of, joint_t, joint_z, quantile
from tts.runs.summary import read_summary

from .cells import BASE, Cell, CellRun


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times another cell's value a cell's is, with its part of a joint 95% interval."""

    value: float
    low: float | None
    """None from a single round, which says nothing of noise; `high` likewise."""
    high: float | None

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out 1; not without an interval."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def ratios(values: Mapping[str, Sequence[float]], base: str) -> dict[str, Ratio]:
    """Each cell's values over those of the cell `base`.

    `values` are positive, of each cell in the order of the rounds. With c cells and r rounds,

        ratio = exp(m - m_base), interval ratio * exp(+-t s sqrt(2 / r)),
        s^2   = sum of (y - cell mean - round mean + grand mean)^2 / ((c - 1) (r - 1))

    for y the logarithms and m their mean in a cell; t is Student's with (c - 1) (r - 1) degrees of
    freedom, beyond which 0.025 / (c - 1) lies.
    """
    logs = {name: [math.log(value) for value in row] for name, row in values.items()}
    means = {name: math.fsum(row) / len(row) for name, row in logs.items()}
    half = _half_width(logs, means)
    by_name = {}
    for name, mean in means.items():
        value = math.exp(mean - means[base])
        if name == base:
            by_name[name] = Ratio(1.0, 1.0, 1.0)
        elif half is None:
            by_name[name] = Ratio(value, None, None)
        else:
            by_name[name] = Ratio(value, value * math.exp(-half), value * math.exp(half))
    return by_name


def _half_width(logs: Mapping[str, Sequence[float]], means: Mapping[str, float]) -> float | None:
    """Half the interval of a difference of two cells' means; None where no noise is seen."""
    rows = list(logs.values())
    rounds = len(rows[0])
    degrees = (len(rows) - 1) * (rounds - 1)
    if degrees < 1:
        return None
    grand = math.fsum(means.values()) / len(means)
    of_round = [math.fsum(row[place] for row in rows) / len(rows) for place in range(rounds)]
    squares = math.fsum(
        (value - means[name] - of_round[place] + grand) ** 2
        for name, row in logs.items()
        for place, value in enumerate(row)
    )
    return joint_t(degrees, len(rows) - 1) * math.sqrt(squares / degrees * 2 / rounds)


@dataclass(frozen=True)
class RunResult:
    """One run of a cell."""

    folder: Path
    wall_s: float
    problems: int
    generated_tokens: int
    """Tokens that both models generated."""
    compute: float | None
    """See `tts.runs.measures.compute_of`."""
    useful_tokens: int
    goodput: float | None
    """See `tts.runs.measures.Measures.goodput`."""
    latencies_s: tuple[float, ...]
    right: Mapping[str, float]
    """Whether each problem's answer is right, where there is a reference."""
    scores: int
    """Scores that its searches asked for."""
    cached_scores: int
    """How many of them needed no request."""
    tree_digest: str
    """The digest of all of its trees and answers."""

    @property
    def problems_per_s(self) -> float:
        """Throughput."""
        return self.problems / self.wall_s

    @classmethod
    def read(cls, folder: Path) -> RunResult:
        """Read a run's folder; raises RunError."""
        run = Run.load(folder)
        measures = run.totals
        work = measures.run.work
        return cls(
            folder,
            measures.wall_s,
            len(measures.problems),
            measures.generated_tokens + work.critique_tokens,
            measures.compute,
            measures.useful_tokens,
            measures.goodput,
            tuple(measures.latencies_s),
            measures.problems.right(run.config.vote),
            work.verifier_calls + work.cached_scores,
            work.cached_scores,
            read_summary(folder).tree_digest,
        )


@dataclass(frozen=True)
class CellResult:
    """A cell over all rounds."""

    cell: Cell
    runs: tuple[RunResult, ...]
    """Its runs, in the order of the rounds."""
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
    def compute_per_problem(self) -> float | None:
        """FLOPs of both models; None where a run's are not known."""
        values = [run.compute for run in self.runs if run.compute is not None]
        return sum(values) / self._sum("problems") if len(values) == len(self.runs) else None

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
        values = [run.goodput for run in self.runs if run.goodput is not None]
        return fmean(values) if values else None

    @property
    def latency_p50_s(self) -> float | None:
        """Median time from the start of a problem to its answer."""
        return quantile((each for run in self.runs for each in run.latencies_s), 0.5)

    @property
    def right(self) -> dict[str, float]:
        """Whether each problem's answer is right, over all rounds."""
        return {name: right for run in self.runs for name, right in run.right.items()}

    @property
    def accuracy(self) -> float | None:
        """Share of the problems with a reference that are right."""
        return fmean(self.right.values()) if self.right else None

    def more_right_than(self, other: CellResult, comparisons: int) -> Gain | None:
        """The paired difference of accuracies; None without problems that both have.

        Its interval holds together with those of so many comparisons.
        """
        return gain_of(self.right, other.right, joint_z(comparisons))

    def _sum(self, name: str) -> float:
        return math.fsum(getattr(run, name) for run in self.runs)


def read_results(cells: Sequence[Cell], rounds: int, folder: Path) -> dict[str, CellResult]:
    """Every cell's result by its name, from `folder`/CELL-ROUND; raises RunError."""
    runs = {
        cell.name: tuple(
            RunResult.read(folder / CellRun(cell, number).folder) for number in range(1, rounds + 1)
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
    numbers = {name: [each for each in row if each is not None] for name, row in medians.items()}
    latencies = ratios(numbers, BASE) if numbers == medians else {}
    return {
        cell.name: CellResult(cell, runs[cell.name], speeds[cell.name], latencies.get(cell.name))
        for cell in cells
    }
