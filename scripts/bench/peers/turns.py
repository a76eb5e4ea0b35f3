"""What is measured in which order; one measurement, and the numbers of all rounds."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BOXED = re.compile(r"\\boxed\{\s*(-?\d+)\s*\}")


@dataclass(frozen=True)
class Measured:
    """What one system did in one round."""

    system: str
    case: str
    """What was asked of it: a strategy, or the requests in flight."""
    values: Mapping[str, float]
    """By name, such as wall_s; the same names for all systems of a part."""


@dataclass(frozen=True)
class Spread:
    """A value over the rounds."""

    median: float
    least: float
    most: float

    def shown(self, digits: int = 1) -> str:
        """The median, and the range where there is one."""
        middle = f"{self.median:,.{digits}f}"
        if self.least == self.most:
            return middle
        return f"{middle} ({self.least:,.{digits}f} to {self.most:,.{digits}f})"


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def in_turns(count: int, rounds: int) -> list[list[int]]:
    """The order of `count` systems in each round: forwards and backwards, so that drift cancels."""
    forwards = list(range(count))
    return [forwards if turn % 2 == 0 else forwards[::-1] for turn in range(rounds)]


def by_system(measured: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    """The rounds of each case of each system, in the order in which they were first measured."""
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for each in measured:
        found[each.case, each.system].append(each)
    return dict(found)


def ratios(theirs: Sequence[Measured], ours: Sequence[Measured], name: str) -> Spread | None:
    """Their value over ours of the same round; None where no round has both."""
    pairs = [(a.values[name], b.values[name]) for a, b in zip(theirs, ours, strict=False)]
    found = [mine / other for mine, other in pairs if other]
    return spread_of(found) if found else None


def final_answer(text: str) -> str | None:
    """The last boxed integer of a solution."""
    found = _BOXED.findall(text)
    return str(int(found[-1])) if found else None


def chosen(completions: Sequence[tuple[str, float]]) -> tuple[str | None, str | None]:
    """The answer of the best completion, and the one with the largest sum of scores."""
    best = final_answer(max(completions, key=lambda each: each[1])[0])
    weights: dict[str, float] = defaultdict(float)
    for text, score in completions:
        if (answer := final_answer(text)) is not None:
            weights[answer] += score
    return best, max(weights, key=lambda answer: weights[answer], default=None)


def accuracies(
    solved: Sequence[Sequence[tuple[str, float]]], references: Sequence[str]
) -> dict[str, float]:
    """The share of problems that are right, by the best completion and by the weighted vote."""
    answers = [chosen(completions) for completions in solved]
    right = list(zip(answers, references, strict=True))
    return {
        "best": sum(answer[0] == reference for answer, reference in right) / len(right),
        "weighted": sum(answer[1] == reference for answer, reference in right) / len(right),
    }
