"""Accuracy over n = 1, 2, 4, ... from one run, where a part of its completions is a smaller run.

The parts of a problem are consecutive blocks of k completions' worth of independent units (chains,
or subtrees), in path order and without overlap; each block votes by itself, a problem counts with
the average over its blocks, and what is left over behind the last whole block is not used. Nothing
is drawn at random: the same log gives the same curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.grading.votes import Group, right_by_rule
from tts.runlog.log import Event
from tts.search import Completion


@dataclass(frozen=True, slots=True)
class Point:
    """Averages over problems at one n; `blocks` is how many runs of that size each problem gave."""

    n: int
    accuracy: float
    pass_at_n: float
    blocks: int


@dataclass(frozen=True, slots=True)
class _Solved:
    """One problem's completions in path order, with their groups."""

    completions: tuple[Completion, ...]
    group_of: tuple[int, ...]
    groups: tuple[Group, ...]


def sizes(n: int, unit: int) -> list[int]:
    """The n of a curve's points: unit, 2 unit, 4 unit, ... and n itself."""
    found = []
    size = unit
    while size < n:
        found.append(size)
        size *= 2
    return [*found, n]


def curve(judged: Sequence[Event], n: int, unit: int, rule: str) -> list[Point] | None:
    """The points of a run of n completions a problem whose units give `unit` completions each.

    `judged` are `problem_solved` events with a reference. None if there are none, or if they come
    from a version that did not log the completions' groups.
    """
    if not judged or any("groups" not in event for event in judged):
        return None
    solved = [_read(event) for event in judged]
    points = []
    for size in sizes(n, unit):
        averages = [_average(problem, n // size, size // unit, unit, rule) for problem in solved]
        points.append(
            Point(
                size,
                round(sum(right for right, _ in averages) / len(solved), 4),
                round(sum(anything for _, anything in averages) / len(solved), 4),
                n // size,
            )
        )
    return points


def _average(
    problem: _Solved, blocks: int, units: int, unit: int, rule: str
) -> tuple[float, float]:
    """Shares of a problem's blocks that are right by `rule`, and that hold a right completion."""
    members: list[list[int]] = [[] for _ in range(blocks)]
    for index, done in enumerate(problem.completions):
        block = done.node[0] // unit // units
        if block < blocks:
            members[block].append(index)
    right = anything = 0
    for block_members in members:
        group_of = [problem.group_of[i] for i in block_members]
        completions = [problem.completions[i] for i in block_members]
        right += right_by_rule(completions, group_of, problem.groups).get(rule, False)
        anything += any(g >= 0 and problem.groups[g].correct for g in group_of)
    return right / blocks, anything / blocks


def _read(event: Event) -> _Solved:
    done = sorted(event["completions"], key=lambda entry: tuple(entry["node"]))
    return _Solved(
        tuple(Completion(tuple(entry["node"]), "", entry["score"]) for entry in done),
        tuple(entry["group"] for entry in done),
        tuple(Group(**group) for group in event["groups"]),
    )
