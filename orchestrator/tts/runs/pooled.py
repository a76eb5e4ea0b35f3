"""Compared runs that differ in their seed alone, taken together.

A problem counts once, with its mean over the seeds: its answers under several seeds are not
independent of one another, and problems are what intervals are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from .compare import Agreement, Row, asked_alike, label, varying
from .statistics import paired, wilson

Budget = tuple[tuple[str, float], ...]
"""The mean cost of a problem to which n was fitted, by name; empty where it was not."""


@dataclass(frozen=True)
class Gain:
    """A difference in accuracy with its 95% interval, on the same problems."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Pooled:
    """A strategy, fitted to a budget or with an n, under one or several seeds."""

    name: str
    """The strategy, and what is special about it."""
    rows: tuple[Row, ...]

    @property
    def budget(self) -> Budget:
        """The mean cost of a problem to which its n was fitted."""
        return budget_of(self.rows[0])

    @property
    def n(self) -> str:
        """Its n, which may be another one under each seed."""
        found = sorted({row.n for row in self.rows})
        return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"

    @property
    def tokens(self) -> float:
        """Mean generated tokens of a problem."""
        return fmean(row.tokens_per_problem for row in self.rows)

    @property
    def seconds(self) -> float | None:
        """Mean seconds from the start of a problem to its answer."""
        known = [row.seconds_per_problem for row in self.rows]
        return fmean(each for each in known if each is not None) if all(known) else None

    @cached_property
    def right(self) -> Mapping[str, Mapping[int, bool]]:
        """By problem and seed, whether the answer is right."""
        found: dict[str, dict[int, bool]] = {}
        for row in self.rows:
            for problem, right in row.right.items():
                found.setdefault(problem, {})[row.seed] = right
        return found

    @property
    def accuracy(self) -> float:
        """Over problems, each with its mean over the seeds."""
        return fmean(fmean(by_seed.values()) for by_seed in self.right.values())

    @property
    def interval_95(self) -> tuple[float, float]:
        """Wilson's, by problems; with several seeds it is wider than it need be."""
        return wilson(self.accuracy, len(self.right))

    def gain_over(self, other: Pooled) -> Gain | None:
        """Accuracy minus that of another one, where both solved the same problems."""
        pairs = {
            problem: [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
            for problem, ours in self.right.items()
            if (theirs := other.right.get(problem, {}))
        }
        pairs = {problem: answers for problem, answers in pairs.items() if answers}
        if not pairs:
            return None
        if all(len(answers) == 1 for answers in pairs.values()):
            agreement = Agreement.of(
                {problem: answers[0][1] for problem, answers in pairs.items()},
                {problem: answers[0][0] for problem, answers in pairs.items()},
            )
            assert agreement.gain is not None
            assert agreement.gain_95 is not None
            return Gain(agreement.gain, *agreement.gain_95)
        found = paired([fmean(a - b for a, b in answers) for answers in pairs.values()])
        assert found is not None
        return Gain(found.mean, *found.interval_95)


def budget_of(row: Row) -> Budget:
    """The mean cost of a problem to which the n of a run was fitted."""
    return tuple(sorted(row.budget.items()))


def pool(rows: Sequence[Row]) -> list[Pooled]:
    """Rows with accuracies, those together that differ in their seed alone: by budget, best first.

    Runs whose n was fitted to the same budget belong together whatever n they have.
    """
    rows = [row for row in rows if row.accuracy is not None and row.right]
    several = len(asked_alike(rows)) > 1
    also = [name for name in varying(rows) if several or name != "seed"]
    together: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        budget = budget_of(row)
        key = label(row, also), row.asked, budget, 0 if budget else row.n
        together.setdefault(key, []).append(row)
    found = [Pooled(label(alike[0], also), tuple(alike)) for alike in together.values()]
    return sorted(found, key=lambda each: (each.budget, -each.accuracy, each.tokens))


def best_at(pooled: Sequence[Pooled]) -> dict[Budget, Pooled]:
    """The most accurate of each budget, the cheaper one of equals."""
    best: dict[Budget, Pooled] = {}
    for each in sorted(pooled, key=lambda each: (-each.accuracy, each.tokens)):
        best.setdefault(each.budget, each)
    return best
