"""Accuracy over n = 1, 2, 4, ... from one run, where a part of its completions is a smaller run.

The parts of a problem are consecutive blocks of k completions' worth of independent units (chains,
or subtrees), in path order and without overlap; each block votes by itself, a problem counts with
the average over its blocks, and what is left over behind the last whole block is not used. Nothing
is drawn at random: the same log gives the same curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tts.grading.votes import Group, right_by_rule
from tts.search import Completion
from tts.strategies.catalog import known_strategy

from .config import RunConfig
from .events import LoggedCompletion, ProblemSolved
from .measures import Measures
from .statistics import mean_pass_at_k

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


def pass_over_k(config: RunConfig, measures: Measures) -> dict[int, float]:
    """pass@k over k = 1, 2, 4, ... and all of a problem's completions (`statistics.pass_at_k`).

    Empty where parts of a problem's completions are not independent, and without references.
    """
    n = config.parameters["n"]
    if n is None or why_dependent(config.strategy, limited=bool(config.limits)):
        return {}
    unit = unit_size(config.strategy, config.parameters)
    counts, most = measures.right_units(n, unit), n // unit
    shares = {
        size * unit: mean_pass_at_k(counts, size)
        for size in sorted({2**power for power in range(most.bit_length())} | {most})
    }
    return {k: share for k, share in shares.items() if share is not None}


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


def points(
    solved: Iterable[ProblemSolved], n: int, unit: int, rule: str
) -> tuple[Point, ...] | None:
    """Averages over the problems with a reference, at each n; None without any."""
    count = 0
    totals = {size: [0.0, 0.0] for size in sizes(n, unit)}
    for event in solved:
        if event.correct is None:
            continue
        count += 1
        for size, total in totals.items():
            votes = block_votes(event, size, n // size, rule)
            total[0] += sum(right for right, _ in votes) / len(votes)
            total[1] += sum(anything for _, anything in votes) / len(votes)
    if not count:
        return None
    return tuple(
        Point(size, round(right / count, 4), round(anything / count, 4), n // size)
        for size, (right, anything) in totals.items()
    )


def block_votes(event: ProblemSolved, size: int, blocks: int, rule: str) -> list[tuple[bool, bool]]:
    """Whether each of a problem's first blocks is right by `rule`, and holds a right completion.

    Each block is the completions below `size` children of the root in turn.
    """
    groups = [Group(logged.answer, logged.correct) for logged in event.groups]
    members: list[list[LoggedCompletion]] = [[] for _ in range(blocks)]
    for end in sorted(event.completions, key=lambda end: end.node):
        block = end.node[0] // size
        if block < blocks:
            members[block].append(end)
    votes = []
    for block_members in members:
        completions = [
            Completion(end.node, "", end.score, end.probability) for end in block_members
        ]
        group_of = [end.group for end in block_members]
        right = right_by_rule(completions, group_of, groups).get(rule, False)
        votes.append((right, any(g >= 0 and bool(groups[g].correct) for g in group_of)))
    return votes
