"""What became of the tokens: which are on the path of a completion, how deep and wide trees are.

Every thought's tokens are in the log, and so is the path of every completion. So what a run wrote
can be told apart, exactly, from what it needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tts.search import NodePath

from .state import ProblemState


@dataclass(frozen=True, slots=True)
class TreeMeasures:
    """The tree of a solved problem."""

    useful_tokens: int
    """Of the nodes on the paths of its completions, each node once."""
    completion_tokens: int
    """Of all completions' paths, shared beginnings counted for each of them."""
    completion_s: float | None
    """The sum over completions of the time from the problem's start until the completion was
    written and scored; None if the problem was begun in an earlier session."""
    completions: int
    first_step_s: float | None
    """From the problem's start to the generator's first answer; None likewise."""
    nodes_by_depth: tuple[int, ...]
    """Nodes of the tree at depth 1, 2, ..., without what was sent ahead in vain."""


def tree_measures(problem: ProblemState) -> TreeMeasures:
    """The measures of a solved problem's tree."""
    tokens = problem.tokens_by_node()
    paths = problem.completed_paths()
    on_a_path = {node for path in paths for node in path}
    timed = problem.started is not None and not problem.resumed
    first_step_s = None
    if timed and problem.started is not None and problem.generated:
        began, first = problem.generated[0]
        first_step_s = began + first.done - problem.started
    depths = Counter(len(node) for node in tokens.keys() - (_in_vain(problem) - on_a_path))
    return TreeMeasures(
        useful_tokens=sum(tokens.get(node, 0) for node in on_a_path),
        completion_tokens=sum(tokens.get(node, 0) for path in paths for node in path),
        completion_s=_completion_s(problem, paths) if timed else None,
        completions=len(paths),
        first_step_s=first_step_s,
        nodes_by_depth=tuple(depths[depth] for depth in range(1, max(depths, default=0) + 1)),
    )


def _completion_s(problem: ProblemState, paths: list[list[NodePath]]) -> float:
    """The sum over completions of the time until each was written and, if it was, scored."""
    started = problem.started or 0.0
    ended = {node: began + event.done for node, _, began, event in problem.thoughts()}
    for began, event in problem.scored:
        ended[event.node] = max(began + event.t, ended.get(event.node, 0.0))
    return sum(ended.get(path[-1], started) - started for path in paths if path)


def _in_vain(problem: ProblemState) -> set[NodePath]:
    """What was sent ahead and never asked for, perhaps as it was asked for before it was sent."""
    asked = {event.node for _, event in problem.used}
    return {
        node
        for node, _, _, event in problem.thoughts()
        if event.kind == "speculative" and event.node not in asked
    }
