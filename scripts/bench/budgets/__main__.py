r"""Accuracy of strategies at equal mean cost: strategies x budgets x seeds on one deployment.

    scripts/run bench.budgets demo --dataset demo --limit 500 --out DIR \
        --strategy beam-search best-of-n mcts:exploration=0.5 --budget 500 1000 2000 --seed 0 1 2

A budget is the mean number of generated tokens per problem. For each strategy and budget, n is
fitted on some of the problems (tts.lab.bench.fitting), unless it is given (`NAME:n=16`); then all
problems are solved with each seed, the first seed of everything first. Single problems may take
more than the budget; with --cap none may, and searches are cut off.

Everything runs in one session with embedded engines, whose prefix caches are emptied before each
part. Results are kept in DIR as they come, and the same command goes on from there; strategies,
budgets and seeds may be added. DIR/table.md has the table so far; differences are paired.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from scripts.bench.budgets.records import Cell, Fit, Records, Solved, Spent
from scripts.bench.budgets.table import markdown
from tts.build.errors import ConfigError, TtsError
from tts.datasets.load import load_problems
from tts.lab.bench.equal_cost import PILOT_SEED
from tts.lab.bench.fitting import fit_n, pilot_of, tokens_of
from tts.problem import Problem
from tts.search import SearchConfig
from tts.session import AsyncSession, Result
from tts.session.function_files import load_all, source_of
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure


class Measurement:
    """Strategies on the same problems in one session."""

    def __init__(
        self, session: AsyncSession, problems: list[Problem], records: Records, cap: bool
    ) -> None:
        self._session = session
        self._problems = problems
        self._records = records
        self._cap = cap

    async def solve(self, cell: Cell) -> None:
        """Solve what a cell has not solved yet."""
        fit = await self._fitted(cell)
        done = self._records.solved.get(cell, {})
        left = [problem for problem in self._problems if problem.id not in done]
        if not left:
            return
        await self._session.reset_prefix_caches()
        began = time.monotonic()
        results = self._session.solve_many(
            left,
            strategy=cell.name,
            parameters=cell.parameters if _takes_budget(cell) else {**cell.parameters, "n": fit.n},
            seed=cell.seed,
            budget_tokens=cell.budget if self._cap or _takes_budget(cell) else None,
        )
        solved = 0
        try:
            async for result in results:
                self._records.add([_solved(cell, result)])
                solved += 1
        finally:
            await results.aclose()
            self._records.add([Spent(cell, solved, time.monotonic() - began)])

    async def _fitted(self, cell: Cell) -> Fit:
        key = cell.strategy, cell.budget
        if key not in self._records.fits:
            self._records.add([await self._fit(cell)])
        return self._records.fits[key]

    async def _fit(self, cell: Cell) -> Fit:
        strategy, given = find_strategy(cell.name), cell.parameters

        def configured(n: int) -> SearchConfig:
            return configure(strategy, self._session.deployment, {**given, "n": n})

        if "n" in given or "n" in strategy.fixed or _takes_budget(cell):
            config = configure(strategy, self._session.deployment, given)
            return Fit(cell.strategy, cell.budget, config.n, 0)
        pilot = pilot_of(self._problems)

        async def mean_tokens(config: SearchConfig) -> float:
            results = self._session.solve_many(pilot, strategy=config, seed=PILOT_SEED)
            return sum([tokens_of(result) async for result in results]) / len(pilot)

        fitted = await fit_n(configured, mean_tokens, cell.budget)
        return Fit(cell.strategy, cell.budget, fitted.config.n, round(fitted.cost, 1))


def _takes_budget(cell: Cell) -> bool:
    """Whether the strategy spends the budget by itself, as the mean of the problems."""
    return find_strategy(cell.name).config.TAKES_BUDGET


def _solved(cell: Cell, result: Result) -> Solved:
    return Solved(
        cell,
        result.problem.id,
        bool(result.correct),
        tokens_of(result),
        result.usage.verifier_tokens,
        round(result.usage.seconds, 4),
        result.limit is not None,
    )


async def measure(args: argparse.Namespace, records: Records) -> None:
    """Fit and solve all that the command line asks for."""
    problems = load_problems(args.dataset, limit=args.limit, seed=args.dataset_seed)
    own = None
    if args.verifier:
        own = load_all({"verifier": source_of(args.verifier)})["verifier"].value
    cells = [
        Cell(strategy, budget, seed)
        for seed in args.seed
        for budget in args.budget
        for strategy in args.strategy
    ]
    async with AsyncSession(args.deployment, server="embedded", verifier=own, say=print) as session:
        measurement = Measurement(session, problems, records, args.cap)
        for place, cell in enumerate(cells, start=1):
            began = time.monotonic()
            await measurement.solve(cell)
            table = markdown(records, args.baseline)
            (args.out / "table.md").write_text(table, encoding="utf-8")
            n = records.fits[cell.strategy, cell.budget].n
            print(
                f"{place}/{len(cells)} {cell.strategy} n={n}, {cell.budget} tokens, "
                f"seed {cell.seed}: {time.monotonic() - began:.0f} s",
                flush=True,
            )


def check_same(args: argparse.Namespace) -> None:
    """Keep what all results of a folder share; raises ConfigError if it was something else."""
    shared = {
        name: str(getattr(args, name))
        for name in ("deployment", "dataset", "dataset_seed", "limit", "verifier", "cap")
    }
    file = args.out / "measurement.json"
    args.out.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_bytes(msgspec.json.encode(shared))
    elif (before := msgspec.json.decode(file.read_bytes())) != shared:
        raise ConfigError(
            f"{args.out} holds a measurement with {before}, not {shared}.",
            hint="Choose another --out.",
        )


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("deployment")
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--dataset-seed", type=int, default=0, help="draws the demo problems")
    parser.add_argument("--limit", type=int, metavar="PROBLEMS")
    parser.add_argument("--verifier", metavar="FILE.py:NAME", help="scores instead of the model")
    parser.add_argument("--strategy", nargs="+", required=True)
    parser.add_argument("--budget", type=int, nargs="+", required=True, metavar="TOKENS")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--cap", action="store_true", help="no problem may take more tokens")
    parser.add_argument("--baseline", default="beam-search", help="differences are to this one")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    try:
        check_same(args)
        records = Records(args.out / "results.jsonl")
        with suppress(KeyboardInterrupt):
            asyncio.run(measure(args, records))
    except TtsError as error:
        raise SystemExit(f"error: {error}") from error
    print(markdown(records, args.baseline))


if __name__ == "__main__":
    main()
