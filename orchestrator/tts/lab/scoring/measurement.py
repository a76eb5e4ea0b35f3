"""What scores and labels of the same chains tell of their verifier.

    ScoredChain ─┬─ steps that have labels ──────────────┐
                 ├─ answers: last, min, product, mean ───┼─► Discrimination
                 ├─ inner: the steps before the last ────┘
                 └─ chains whose first error is known ───► FirstError

Everything is the verifier's own scores, as given, and pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from tts.runs.clustered import (
    Estimate,
    Flags,
    Floats,
    Observations,
    auroc,
    auroc_within,
    brier,
    expected_error,
    rank_correlation,
    ranking,
    ratio,
)
from tts.search.thought import Aggregation, aggregate

from .chains import ScoredChain, first_wrong
from .first_error import FirstError, find_first_errors

AGGREGATIONS: Final[tuple[Aggregation, ...]] = get_args(Aggregation)
MOST_LEVELS: Final = 12
"""More different levels are none: names, perhaps."""


@dataclass(frozen=True, eq=False)
class Group:
    """Observations that share a depth, a length or a level."""

    by: str
    """`depth`, `length` or `level`."""
    name: str
    right: int
    wrong: int
    auroc: Estimate | None
    expected_error: Estimate | None


@dataclass(frozen=True, eq=False)
class Picks:
    """What the highest score of each problem with several chains picks."""

    best: Estimate
    """Share of problems whose highest-scored chain is right; ties count as their mean."""
    random: Estimate
    """The mean share of right chains: a pick without a verifier."""
    any: Estimate
    """Share of problems with a right chain: a perfect pick."""


@dataclass(frozen=True, eq=False)
class Discrimination:
    """How well scores tell right from wrong."""

    these: Observations
    auroc: Estimate | None
    """None unless some are right and some are wrong."""
    within: Estimate | None
    """AUROC over pairs of one problem."""
    expected_error: Estimate
    """Expected calibration error over 10 bins."""
    brier: Estimate
    alone: Mapping[str, Estimate]
    """AUROC of the depth, and of the length, in place of the score."""
    correlations: Mapping[str, Estimate]
    """Rank correlation of the score with depth and length among equally labelled observations."""
    groups: Sequence[Group]
    picks: Picks | None = None
    """What the highest scores pick; None but for answers."""

    @property
    def right(self) -> int:
        """Right observations."""
        return int(self.these.right.sum())

    @property
    def wrong(self) -> int:
        """Wrong observations."""
        return len(self.these) - self.right

    @property
    def ranking(self) -> Estimate | None:
        """The AUROC that a verifier is judged by."""
        return ranking(self.these)


@dataclass(frozen=True, eq=False)
class Measurement:
    """A verifier, measured."""

    chains: int
    problems: int
    every: Observations
    """All step scores; their labels are none."""
    length_unit: str
    unscored: int
    """Chains that were left out, since a step has no score."""
    not_numbers: Sequence[str]
    """Where scores are NaN or infinite: these count as none."""
    steps: Discrimination | None
    """Steps that have labels."""
    inner: Discrimination | None
    """Steps before the last, by their labels; in chains without any, by the answer's."""
    answers: Mapping[Aggregation, Discrimination]
    """Chains whose answers have labels, by how their step scores become one."""
    first_error: FirstError | None

    @property
    def scores(self) -> int:
        """Step scores."""
        return len(self.every)

    @property
    def final(self) -> Discrimination | None:
        """Last steps, by whether the answer is right."""
        return self.answers.get("last")

    @property
    def main(self) -> Discrimination | None:
        """What a verifier is judged by: answers, else steps."""
        judged = [each for each in (self.final, self.steps) if each is not None]
        return next((each for each in judged if each.auroc), judged[0] if judged else None)


_Row = tuple[float, bool, int, int, int, str | None]
"""An observation: score, label, the problem's number, depth, length, level."""


def _discrimination(
    rows: Sequence[_Row], count: int, *, answers: bool = False
) -> Discrimination | None:
    """What observations of so many problems tell; None without any."""
    if not rows:
        return None
    scores, right, problems, depths, lengths, levels = zip(*rows, strict=True)
    these = Observations.of(scores, right, problems, count)
    error, squares = expected_error(these), brier(these)
    if error is None or squares is None:
        return None
    values = {"depth": np.array(depths, np.float64), "length": np.array(lengths, np.float64)}
    return Discrimination(
        these,
        auroc(these),
        auroc_within(these),
        error,
        squares,
        _present((name, auroc(these.scored(value))) for name, value in values.items()),
        _present((name, rank_correlation(these, value)) for name, value in values.items()),
        [*_groups(these, values, levels)],
        _picks(these) if answers else None,
    )


def measure(chains: Sequence[ScoredChain], *, length_unit: str = "tokens") -> Measurement:
    """The measurement of a verifier by its scores of labelled chains."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(c.chain.problem for c in chains))}
    count = len(numbers)
    steps, inner, every = list[_Row](), list[_Row](), list[_Row]()
    answers = {how: list[_Row]() for how in AGGREGATIONS}
    erring: list[tuple[list[float], int, int, str | None]] = []
    not_numbers: list[str] = []
    unscored, stepwise = 0, False
    for scored in chains:
        chain, problem = scored.chain, numbers[scored.chain.problem]
        scores = [_number(score) for score in scored.scores]
        for place, (score, plain) in enumerate(zip(scores, scored.scores, strict=True), 1):
            if score is None and plain is not None:
                not_numbers.append(f"{chain.place or chain.name}, step {place}: {plain}")
        labels = chain.right_steps or (None,) * len(scores)
        right = answer_label(scored)
        for place, (score, label) in enumerate(zip(scores, labels, strict=True)):
            if score is None:
                continue
            row = problem, place + 1, scored.lengths[place], chain.level
            every.append((score, True, *row))
            if label is not None:
                steps.append((score, label, *row))
            ending = right if chain.right_steps is None else label
            if place < len(scores) - 1 and ending is not None:
                inner.append((score, ending, *row))
        numeric = [score for score in scores if score is not None]
        last_alone = len(numeric) == 1 and scores[-1] is not None
        if len(numeric) < len(scores) and not last_alone:
            unscored += 1
            continue
        stepwise = stepwise or len(numeric) > 1
        if right is not None:
            row = problem, len(scores), sum(scored.lengths), chain.level
            for how, rows in answers.items():
                rows.append((aggregate(numeric, how), right, *row))
        first = first_wrong(chain.right_steps)
        if first is not None and len(numeric) == len(scores):
            erring.append((numeric, first, problem, chain.level))
    kinds = {how: _discrimination(rows, count, answers=True) for how, rows in answers.items()}
    return Measurement(
        len(chains),
        count,
        Observations.of(
            [row[0] for row in every], [True] * len(every), [row[2] for row in every], count
        ),
        length_unit,
        unscored,
        not_numbers,
        _discrimination(steps, count),
        _discrimination(inner, count),
        {how: kind for how, kind in kinds.items() if kind and (stepwise or how == "last")},
        find_first_errors(
            [each[0] for each in erring],
            [each[1] for each in erring],
            np.array([each[2] for each in erring], np.int64),
            count,
            [each[3] for each in erring],
        ),
    )


def answer_label(scored: ScoredChain) -> bool | None:
    """Whether a chain's answer is right; where nobody says so, whether all its steps are."""
    if scored.chain.right is not None:
        return scored.chain.right
    first = first_wrong(scored.chain.right_steps)
    return None if first is None else first < 0


def compare_aggregations(
    answers: Mapping[Aggregation, Discrimination],
) -> tuple[Aggregation, dict[Aggregation, tuple[float, float]]] | None:
    """The aggregation that tells answers apart best, and by how much from each other one.

    The intervals of the differences of AUROC are paired, and hold together in 95% of cases over all
    six pairs, since the best is chosen by what is compared. None with fewer than two.
    """
    areas = {how: area for how, each in answers.items() if (area := each.ranking)}
    if len(areas) < 2:
        return None
    best = max(areas, key=lambda how: areas[how].value)
    pairs = math.comb(len(areas), 2)
    differences = {
        how: (areas[best] - area).joint_interval(pairs)
        for how, area in areas.items()
        if how != best
    }
    return best, differences


def _number(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def _present(pairs: Iterable[tuple[str, Estimate | None]]) -> dict[str, Estimate]:
    return {name: estimate for name, estimate in pairs if estimate is not None}


def _groups(
    these: Observations, values: Mapping[str, Floats], levels: Sequence[str | None]
) -> Iterator[Group]:
    """Terciles of each value, and the levels; what would be one group alone is none."""
    parts: dict[str, dict[str, Flags]] = {}
    for by, value in values.items():
        ends = np.unique(np.quantile(value, [1 / 3, 2 / 3, 1], method="inverted_cdf"))
        places = np.searchsorted(ends, value)
        masks = [places == place for place in range(len(ends))]
        parts[by] = {
            f"{value[mask].min():,.0f} to {value[mask].max():,.0f}": mask for mask in masks
        }
    names = sorted({level for level in levels if level is not None}, key=lambda n: (len(n), n))
    if len(names) <= MOST_LEVELS:
        parts["level"] = {name: np.array([each == name for each in levels]) for name in names}
    for by, masks_by_name in parts.items():
        for name, mask in masks_by_name.items() if len(masks_by_name) > 1 else ():
            part = these.where(mask)
            right = int(part.right.sum())
            yield Group(by, name, right, len(part) - right, auroc(part), expected_error(part))


def _picks(these: Observations) -> Picks | None:
    """What the highest score picks; None unless problems have several chains."""
    sizes = these.sums()
    several = sizes > 1
    best = np.full(these.count, -np.inf)
    np.maximum.at(best, these.problems, these.scores)
    top = (these.scores == best[these.problems]).astype(np.float64)
    rights, tops = these.sums(these.right.astype(np.float64)), these.sums(top)
    wins = these.sums(top * these.right)
    one = several.astype(np.float64)
    shares = [
        ratio(np.divide(part, whole, out=np.zeros(these.count), where=several), one)
        for part, whole in ((wins, tops), (rights, sizes), (np.minimum(rights, 1), one))
    ]
    best_share, random, any_right = shares
    if best_share is None or random is None or any_right is None:
        return None
    return Picks(best_share, random, any_right)
