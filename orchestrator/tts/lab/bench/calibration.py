"""A policy of `auto` from finished runs: which search is worth its tokens at which difficulty.

One run samples chains (weighted-best-of-n), the others are searches that may go on from them, all
on the same problems. A run whose parts are runs with a smaller n (`Strategy.independent`) tells the
worth of every smaller power of two as well. Every block of k chains is one estimate of its
problem's difficulty, and the estimates are split into bins of equal size. For each budget, the
policy is the most accurate way to give each bin a search that costs no more on average. The cost of
a search that goes on from samples is an upper bound: only the first steps are taken to be shared.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tts.build.errors import ConfigError
from tts.runs.config import read_run_config
from tts.runs.curves import block_votes, sizes
from tts.runs.events import ProblemSolved
from tts.runs.log import read_events
from tts.runs.state import solved_problems
from tts.search.auto import SEARCHES, Budget, Choice, Policy
from tts.strategies.catalog import find_strategy

BINS = 5
"""Bins of difficulty, as in Snell et al. 2024."""
SAMPLES = (1, 2, 4, 8)
"""Numbers of samples that are tried."""
SAMPLING = "weighted-best-of-n"
RULE = "weighted"

Cell = tuple[str, int]
"""A strategy and its n."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a search brings to a problem, or to many on average."""

    right: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean score of some samples, and what each search that can go on from them is worth."""

    mean_score: float
    worth: Mapping[Cell, Worth]


@dataclass(frozen=True, slots=True)
class Solved:
    """One problem of a run; tokens are those generated for one completion, on average."""

    event: ProblemSolved
    tokens: float
    first_step_tokens: float


@dataclass(frozen=True, slots=True)
class RunOfCells:
    """A finished run, which tells the worth of its search at each n of `sizes`."""

    folder: Path
    strategy: str
    sizes: tuple[int, ...]
    problems: Mapping[str, Solved]


def make_policy(folders: Sequence[Path], budgets: Sequence[int]) -> Policy:
    """The policy that the runs in these folders suggest, with these mean costs in whole chains.

    Raises ConfigError for runs that it cannot be made from, or a budget that is too small.
    """
    runs = [read_run(folder) for folder in folders]
    sampled = [run for run in runs if run.strategy == SAMPLING]
    if len(sampled) != 1:
        raise ConfigError(
            f"{len(sampled)} of the runs are of {SAMPLING}; one is needed, for the samples."
        )
    for run in runs:
        if run.problems.keys() != sampled[0].problems.keys():
            raise ConfigError(
                f"{run.folder} and {sampled[0].folder} did not solve the same problems.",
                hint="Give all runs the same --dataset, --seed and --limit.",
            )
    chain = _mean([solved.tokens for solved in sampled[0].problems.values()])
    searches = [run for run in runs if run is not sampled[0]]
    per_samples = {
        k: list(estimates(sampled[0], searches, k)) for k in SAMPLES if k <= max(sampled[0].sizes)
    }
    names = ", ".join(f"{run.strategy} n={max(run.sizes)}" for run in runs)
    return Policy(
        made_from=f"{names}, {len(sampled[0].problems)} problems",
        budgets=tuple(best_budget(per_samples, n, chain) for n in sorted(set(budgets))),
    )


def read_run(folder: Path) -> RunOfCells:
    """A finished run; raises a TtsError if it is none of a search that `auto` may choose."""
    config = read_run_config(folder)
    name, n = config.strategy, config.parameters["n"]
    if name not in SEARCHES:
        raise ConfigError(
            f"{folder} is a run of {name}, which auto does not choose.",
            hint=f"It chooses among {', '.join(SEARCHES)}.",
        )
    independent = find_strategy(name).independent
    unit = config.parameters["beam_width"] if independent == "subtrees" else 1
    solved: dict[str, Solved] = {}
    for problem in solved_problems(read_events(folder)):
        roots = (event for _, event in problem.generated if len(event.node) == 1)
        first = sum(len(event.thoughts[0].ids) for event in roots)
        if problem.solution:
            tokens = problem.work.generated_tokens
            solved[problem.id] = Solved(problem.solution, tokens / n, first / n)
    if not solved or any(each.event.reference is None for each in solved.values()):
        raise ConfigError(f"{folder} has no solved problems with reference answers.")
    return RunOfCells(
        folder,
        name,
        tuple(sizes(n, unit)) if independent else (n,),
        solved,
    )


def estimates(sampled: RunOfCells, searches: Sequence[RunOfCells], k: int) -> Iterator[Estimate]:
    """An estimate for each whole block of `k` chains of each problem, which may go on as sampling.

    The block is part of the chains then; a search's own are others, so it counts with its average.
    """
    chains = max(sampled.sizes)
    for name, solved in sampled.problems.items():
        others = {
            (run.strategy, n): _of_search(run.problems[name], n, max(run.sizes), solved, k)
            for run in searches
            for n in run.sizes
            if n >= k
        }
        right = {n: _right(solved.event, n, chains) for n in sampled.sizes if n >= k}
        scores = {done.node[0]: done.score or 0.0 for done in solved.event.completions}
        for first in range(0, chains - k + 1, k):
            own = {
                (SAMPLING, n): Worth(of_blocks[first // n], n * solved.tokens)
                for n, of_blocks in right.items()
                if first // n < len(of_blocks)
            }
            block = [scores[chain] for chain in range(first, first + k)]
            yield Estimate(_mean(block), {**own, **others})


def best_budget(per_samples: Mapping[int, Sequence[Estimate]], n: int, chain: float) -> Budget:
    """The most accurate choices that cost at most `n` chains of `chain` tokens on average.

    `per_samples` has the estimates by their number of samples. Raises ConfigError if all cost more.
    """
    best: tuple[Worth, Budget] | None = None
    for k, known in per_samples.items():
        thresholds, bins = split(known)
        for worth, cells in frontier([mean_worth(part, len(known)) for part in bins]):
            better = best is None or worth.right > best[0].right
            if worth.tokens <= n * chain * (1 + 1e-9) and better:
                best = worth, Budget(n=n, samples=k, choices=_choices(thresholds, cells))
    if best is None:
        raise ConfigError(f"No search of these runs costs as little as {n} chains.")
    return best[1]


def split(known: Sequence[Estimate]) -> tuple[list[float], list[list[Estimate]]]:
    """Thresholds of the mean score, increasing, and the estimates in the bins between them.

    The bins hold equally many, as far as equal scores allow.
    """
    scores = sorted(estimate.mean_score for estimate in known)
    edges = {round(scores[len(scores) * i // BINS], 4) for i in range(1, BINS)}
    thresholds = sorted(edge for edge in edges if scores[0] < edge <= scores[-1])
    bins: list[list[Estimate]] = [[] for _ in range(len(thresholds) + 1)]
    for estimate in known:
        bins[bisect_right(thresholds, estimate.mean_score)].append(estimate)
    filled = [part for part in bins if part]
    # a threshold that nothing lies below is none
    kept = [edge for edge, part in zip(thresholds, bins, strict=False) if part]
    return kept[: len(filled) - 1], filled


def mean_worth(part: Sequence[Estimate], total: int) -> dict[Cell, Worth]:
    """What each search adds to the mean over all `total` estimates if it gets this bin."""
    cells = set.intersection(*(set(estimate.worth) for estimate in part))
    return {
        cell: Worth(
            math.fsum(estimate.worth[cell].right for estimate in part) / total,
            math.fsum(estimate.worth[cell].tokens for estimate in part) / total,
        )
        for cell in sorted(cells)
    }


def frontier(bins: Sequence[Mapping[Cell, Worth]]) -> list[tuple[Worth, tuple[Cell, ...]]]:
    """The ways to give each bin a search that no cheaper way is as accurate as, cheapest first."""
    ways: list[tuple[Worth, tuple[Cell, ...]]] = [(Worth(0.0, 0.0), ())]
    for cells in bins:
        longer = [
            (Worth(so_far.right + worth.right, so_far.tokens + worth.tokens), (*way, cell))
            for so_far, way in ways
            for cell, worth in cells.items()
        ]
        longer.sort(key=lambda way: (way[0].tokens, -way[0].right, way[1]))
        ways = []
        for way in longer:
            if not ways or way[0].right > ways[-1][0].right:
                ways.append(way)
    return ways


def _choices(thresholds: Sequence[float], cells: Sequence[Cell]) -> tuple[Choice, ...]:
    """One for each bin; neighbours that get the same search are one choice."""
    choices = []
    for place, (strategy, n) in enumerate(cells):
        if place + 1 == len(cells) or cells[place + 1] != (strategy, n):
            below = thresholds[place] if place < len(thresholds) else None
            choices.append(Choice(below=below, strategy=strategy, n=n))
    return tuple(choices)


def _of_search(found: Solved, n: int, whole: int, samples: Solved, k: int) -> Worth:
    """A search of n completions after k samples, by the average over the blocks of a run."""
    blocks = _right(found.event, n, whole)
    if n == whole and found.event.correct is not None:  # not every search has blocks
        blocks = [found.event.correct[RULE]]
    tokens = n * found.tokens + k * (samples.tokens - samples.first_step_tokens)
    return Worth(_mean(blocks), tokens)


def _right(event: ProblemSolved, n: int, whole: int) -> list[bool]:
    """Whether each block of `n` of the `whole` completions is right by the vote."""
    return [right for right, _ in block_votes(event, n, whole // n, RULE)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
