"""Accuracy over n = 1, 2, 4, ... from one run, where a part of its completions is a smaller run.

The parts of a problem are consecutive blocks of k completions' worth of independent units (chains,
or subtrees), in path order and without overlap; each block votes by itself, a problem counts with
the average over its blocks, and what is left over behind the last whole block is not used. Nothing
is drawn at random: the same log gives the same curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tts.grading.votes import Group, right_by_rule
from tts.search import Completion
from tts.strategies.catalog import known_strategy

from .events import LoggedCompletion, ProblemSolved

WhyDependent = Literal["dependent", "limits"]
"""No part of the search is a smaller one; its limits are those of whole problems."""


def why_dependent(strategy: str, *, limited: bool) -> WhyDependent | None:
    """Why the parts of a run do not count as smaller runs; None if they do.

    `limited`: whether its problems were, in tokens or in time.
    """
    known = known_strategy(strategy)
    if known is None or known.independent is None:
        return "dependent"
    return "limits" if limited else None


def unit_size(strategy: str, parameters: Mapping[str, Any]) -> int:
    """How many completions an independent part of the search gives: a chain's one, or a subtree's.

    Part i holds the nodes whose first index, divided by this, is i.
    """
    known = known_strategy(strategy)
    subtrees = known is not None and known.independent == "subtrees"
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
    found = []
    size = unit
    while size < n:
        found.append(size)
        size *= 2
    return [*found, n]


Shares = list[tuple[float, float]]
"""A problem's shares at each n of the curve: of its blocks that are right by the rule, and of those
that hold a right completion."""


def block_shares(event: ProblemSolved, n: int, unit: int, rule: str) -> Shares:
    """What one problem with a reference adds to a curve."""
    found = []
    for size in sizes(n, unit):
        blocks = n // size
        right, anything = zip(*block_votes(event, size, blocks, rule), strict=True)
        found.append((sum(right) / blocks, sum(anything) / blocks))
    return found


def points(shares: Sequence[Shares], n: int, unit: int) -> list[Point]:
    """Averages of all problems' shares; empty without problems."""
    if not shares:
        return []
    found = []
    for place, size in enumerate(sizes(n, unit)):
        right, anything = zip(*(each[place] for each in shares), strict=True)
        found.append(
            Point(
                size,
                round(sum(right) / len(shares), 4),
                round(sum(anything) / len(shares), 4),
                n // size,
            )
        )
    return found


def block_votes(event: ProblemSolved, size: int, blocks: int, rule: str) -> list[tuple[bool, bool]]:
    """Whether each of a problem's first blocks is right by `rule`, and holds a right completion.

    Each block is the completions below `size` children of the root in turn.
    """
    groups = [Group(logged.answer, logged.correct) for logged in event.groups]
    members: list[list[LoggedCompletion]] = [[] for _ in range(blocks)]
    for done in sorted(event.completions, key=lambda done: done.node):
        block = done.node[0] // size
        if block < blocks:
            members[block].append(done)
    found = []
    for block_members in members:
        completions = [Completion(done.node, "", done.score) for done in block_members]
        group_of = [done.group for done in block_members]
        right = right_by_rule(completions, group_of, groups).get(rule, False)
        found.append((right, any(g >= 0 and bool(groups[g].correct) for g in group_of)))
    return found
