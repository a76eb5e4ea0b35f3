"""Accuracy over n = 1, 2, 4, ... from one run, where a part of its completions is a smaller run.

The parts of a problem are consecutive blocks of k completions' worth of independent units (chains,
or subtrees), in path order and without overlap; each block votes by itself, a problem counts with
the average over its blocks, and what is left over behind the last whole block is not used. Nothing
is drawn at random: the same log gives the same curve.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from tts.grading.votes import Group, right_by_rule
from tts.search import Completion
from tts.strategies.catalog import known_strategy

from .config import RunConfig
from .events import LoggedCompletion, ProblemSolved
from .statistics import pass_at_k

WhyDependent = Literal["dependent", "limits"]
"""No part of the search is a smaller one; its limits are those of whole problems."""


def why_dependent(strategy: str, *, limited: bool) -> WhyDependent | None:
    """Why the parts of a run do not count as smaller runs; None if they do.

    `limited`: whether its problems were, in tokens or in time.
    """
    entry = known_strategy(strategy)
    if entry is None or entry.independent is None:
        return "dependent"
    return "limits" if limited else None


def unit_size(strategy: str, parameters: Mapping[str, Any]) -> int:
    """How many completions an independent part of the search gives: a chain's one, or a subtree's.

    Part i holds the nodes whose first index, divided by this, is i.
    """
    entry = known_strategy(strategy)
    subtrees = entry is not None and entry.independent == "subtrees"
    return int(parameters["beam_width"]) if subtrees else 1


@dataclass(frozen=True, slots=True)
class Point:
    """Averages over problems at one n; `blocks` is how many runs of that size each problem gave."""

    n: int
    accuracy: float
    pass_at_n: float
    blocks: int


def sizes(n: int, unit: int) -> list[int]:
    """The n of a curve's points: unit, 2 unit, 4 unit, ... and n itself."""
    doublings = []
    size = unit
    while size < n:
        doublings.append(size)
        size *= 2
    return [*doublings, n]


class AccuracyOverN:
    """What smaller runs inside a run come to, over its problems with a reference."""

    def __init__(self, n: int, unit: int) -> None:
        """The run gives `n` completions a problem, each independent part `unit` of them."""
        self._n, self._unit = n, unit
        self._count = 0
        self._right = {size: defaultdict[str, float](float) for size in sizes(n, unit)}
        self._any_right = dict.fromkeys(self._right, 0.0)
        self._right_units: dict[int, int] = defaultdict(int)
        """Problems by how many of their parts hold a right completion."""

    @classmethod
    def of(cls, config: RunConfig) -> Self | None:
        """The curve of a run; None where parts of a problem's completions are not independent."""
        n = config.parameters.get("n")
        if n is None or why_dependent(config.strategy, limited=bool(config.limits)):
            return None
        return cls(n, unit_size(config.strategy, config.parameters))

    def add(self, event: ProblemSolved) -> None:
        """Take in a solved problem."""
        if event.correct is None:
            return
        self._count += 1
        right = {place for place, group in enumerate(event.groups) if group.correct}
        units = {end.node[0] // self._unit for end in event.completions if end.group in right}
        self._right_units[len(units)] += 1
        for size, totals in self._right.items():
            blocks = self._n // size
            votes, any_right = defaultdict[str, int](int), 0
            for rights, anything in _block_votes(event, size, blocks):
                any_right += anything
                for rule, is_right in rights.items():
                    votes[rule] += is_right
            self._any_right[size] += any_right / blocks
            for rule, count in votes.items():
                totals[rule] += count / blocks

    def points(self, rule: str) -> tuple[Point, ...] | None:
        """Averages over the problems at each n, by this rule; None without problems."""
        if not self._count:
            return None
        return tuple(
            Point(
                size,
                round(totals[rule] / self._count, 4),
                round(self._any_right[size] / self._count, 4),
                self._n // size,
            )
            for size, totals in self._right.items()
        )

    def pass_over_k(self) -> dict[int, float]:
        """pass@k over k = 1, 2, 4, ... units and all of a problem's (`statistics.pass_at_k`)."""
        units, counts = self._n // self._unit, self._right_units.items()
        return {
            k * self._unit: sum(pass_at_k(units, right, k) * n for right, n in counts) / self._count
            for k in sizes(units, 1)
            if self._count
        }


def _block_votes(
    event: ProblemSolved, size: int, blocks: int
) -> Iterator[tuple[dict[str, bool], bool]]:
    """Whether each of a problem's first blocks is right by rule, and holds a right completion.

    Each block is the completions below `size` children of the root in turn.
    """
    groups = [Group(logged.answer, logged.correct) for logged in event.groups]
    members: list[list[LoggedCompletion]] = [[] for _ in range(blocks)]
    for end in sorted(event.completions, key=lambda end: end.node):
        block = end.node[0] // size
        if block < blocks:
            members[block].append(end)
    for ends in members:
        completions = [Completion(end.node, "", end.score, end.probability) for end in ends]
        group_of = [end.group for end in ends]
        anything = any(g >= 0 and bool(groups[g].correct) for g in group_of)
        yield right_by_rule(completions, group_of, groups), anything
