"""The table of a measurement: a row for each strategy and budget, all seeds together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tts.runs.statistics import Difference, half_width, paired

from .records import Fit, Records

HEADINGS = (
    "strategy",
    "n",
    "budget",
    "tokens",
    "verifier tokens",
    "accuracy, %",
    "over {}, points",
    "s per problem",
    "seeds x problems",
)


@dataclass(frozen=True)
class Row:
    """A strategy at a budget: means per problem over all seeds."""

    fit: Fit
    tokens: float
    verifier_tokens: float
    accuracy: float
    seconds: float | None
    """Wall seconds over problems, which run at the same time."""
    seeds: int
    problems: int
    limited: float
    """Share of the searches that the budget ended."""
    shares: Mapping[str, Mapping[int, bool]]
    """By problem and seed, whether the answer is right."""

    def over(self, baseline: Row) -> Difference | None:
        """Accuracy minus the baseline's on what both solved, with the same seeds.

        A problem counts once, with its mean over the seeds: its answers are not independent.
        """
        return paired(
            [
                fmean(float(ours[seed]) - float(theirs[seed]) for seed in seeds)
                for problem, ours in self.shares.items()
                if (theirs := baseline.shares.get(problem, {}))
                and (seeds := ours.keys() & theirs.keys())
            ]
        )


def rows_of(records: Records) -> list[Row]:
    """A row for each strategy and budget, in the order in which they were begun."""
    return [row for fit in records.fits.values() if (row := _row(records, fit))]


def _row(records: Records, fit: Fit) -> Row | None:
    cells = [
        cell
        for cell in records.solved
        if (cell.strategy, cell.budget) == (fit.strategy, fit.budget)
    ]
    solved = [each for cell in cells for each in records.solved[cell].values()]
    if not solved:
        return None
    spent = [each for cell in cells for each in records.spent.get(cell, [])]
    shares: dict[str, dict[int, bool]] = {}
    for each in solved:
        shares.setdefault(each.problem, {})[each.cell.seed] = each.right
    timed = sum(each.problems for each in spent)
    return Row(
        fit,
        tokens=fmean(each.tokens for each in solved),
        verifier_tokens=fmean(each.verifier_tokens for each in solved),
        accuracy=fmean(each.right for each in solved),
        seconds=sum(each.wall_s for each in spent) / timed if timed else None,
        seeds=len(cells),
        problems=len(shares),
        limited=fmean(each.limited for each in solved),
        shares=shares,
    )


def markdown(records: Records, baseline: str) -> str:
    """The table, by budget; differences are to the strategy `baseline` at the same budget.

    Brackets hold 95% intervals, over problems.
    """
    rows = sorted(rows_of(records), key=lambda row: row.fit.budget)
    bases = {row.fit.budget: row for row in rows if row.fit.strategy == baseline}
    headings = [heading.format(baseline) for heading in HEADINGS]
    return as_markdown(headings, [list(_cells(row, bases.get(row.fit.budget))) for row in rows])


def as_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cells(row: Row, baseline: Row | None) -> Iterator[str]:
    yield row.fit.strategy
    yield str(row.fit.n)
    yield str(row.fit.budget)
    yield f"{row.tokens:.0f}" + (f" ({row.limited:.0%} cut)" if row.limited else "")
    yield f"{row.verifier_tokens:.0f}"
    yield f"{100 * row.accuracy:.1f} ±{100 * half_width(row.accuracy, row.problems):.1f}"
    yield difference(row, baseline) or "-"
    yield "-" if row.seconds is None else f"{row.seconds:.3f}"
    yield f"{row.seeds} x {row.problems}"


def difference(row: Row, baseline: Row | None) -> str:
    """A row's accuracy over another's, in points, with its interval; "" if none is to be had."""
    if baseline is None or baseline is row:
        return ""
    found = row.over(baseline)
    if found is None:
        return ""
    low, high = found.interval_95
    return f"{100 * found.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
