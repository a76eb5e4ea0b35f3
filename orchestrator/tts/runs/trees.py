"""What became of the tokens: which are on the path of a completion, how deep and wide trees are.

Every thought's tokens are in the log, and so is the path of every completion. So what a run wrote
can be told apart, exactly, from what it needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tts.search import NodePath

from .events import Generated, ProblemSolved, Scored


@dataclass(slots=True)
class _Growing:
    """The tree of a problem that is being solved."""

    started: float | None = None
    first_answer: float | None = None
    """When the generator had answered for the first time."""
    resumed: bool = False
    """Part of it was written in an earlier session, so that its times do not say how long it took.
    """
    tokens: dict[NodePath, int] = field(default_factory=dict)
    ended: dict[NodePath, float] = field(default_factory=dict)
    """When a node was written and, where it was scored, its score was there."""
    ahead: dict[NodePath, tuple[NodePath, ...]] = field(default_factory=dict)
    """Nodes that speculative requests wrote, by the first one of each."""
    asked: set[NodePath] = field(default_factory=set)
    """Which of them the search has asked for, perhaps before they were written."""


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


class Trees:
    """Follows the trees of running problems; what is solved is forgotten."""

    def __init__(self) -> None:
        self._growing: dict[str, _Growing] = {}

    def new_session(self) -> None:
        """What is unfinished goes on in a later session."""
        for tree in self._growing.values():
            tree.resumed = True

    def started(self, problem: str, now: float) -> None:
        """A problem begins, or goes on in a later session."""
        self._growing.setdefault(problem, _Growing()).started = now

    def generated(self, event: Generated, done: float) -> None:
        """The generator has answered at `done`."""
        tree = self._growing.setdefault(event.problem, _Growing())
        if tree.first_answer is None:
            tree.first_answer = done
        written = []
        node = event.node
        for thought in event.thoughts:
            tree.tokens[node] = len(thought.ids)
            tree.ended[node] = done
            written.append(node)
            node = (*node, 0)
        if event.kind == "speculative":
            tree.ahead[event.node] = tuple(written)

    def used(self, problem: str, node: NodePath) -> None:
        """A search has asked for what was sent ahead."""
        if tree := self._growing.get(problem):
            tree.asked.add(node)

    def scored(self, event: Scored, now: float) -> None:
        """A node has got its score at `now`."""
        if tree := self._growing.get(event.problem):
            tree.ended[event.node] = max(now, tree.ended.get(event.node, now))

    def solved(self, event: ProblemSolved) -> TreeMeasures:
        """The measures of a problem's tree, which is forgotten."""
        tree = self._growing.pop(event.problem, _Growing())
        on_a_path: set[NodePath] = set()
        total, times = 0, 0.0
        for done in event.completions:
            path = [done.node[:depth] for depth in range(1, len(done.node) + 1)]
            on_a_path.update(path)
            total += sum(tree.tokens.get(node, 0) for node in path)
            if tree.started is not None:
                times += tree.ended.get(done.node, tree.started) - tree.started
        timed = tree.started is not None and not tree.resumed
        first = None
        if tree.started is not None and tree.first_answer is not None and timed:
            first = tree.first_answer - tree.started
        unasked = (nodes for first, nodes in tree.ahead.items() if first not in tree.asked)
        in_vain = set().union(*unasked) - on_a_path
        depths = Counter(len(node) for node in tree.tokens if node not in in_vain)
        return TreeMeasures(
            useful_tokens=sum(tree.tokens.get(node, 0) for node in on_a_path),
            completion_tokens=total,
            completion_s=times if timed else None,
            completions=len(event.completions),
            first_step_s=first,
            nodes_by_depth=tuple(depths[depth] for depth in range(1, max(depths, default=0) + 1)),
        )
