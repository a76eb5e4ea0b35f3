"""The tree of one problem: nodes by path, their scores and ranks, and its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .calibration import Calibration
from .thought import (
    MAX_SCORE,
    Aggregation,
    Completion,
    Fate,
    NodePath,
    Thought,
    aggregate,
    quantise,
)

Rank = tuple[float, float, NodePath]
"""Sort key of paths: the best path score first, then the best score of the last step (both
negated), then the smaller path. Under `min` siblings often tie at their parent's score."""


@dataclass(slots=True)
class Node:
    """A thought's place in the tree. `score` is locked at the first write."""

    path: NodePath
    above: Node | None = field(default=None, repr=False, compare=False)
    """Its parent; None at the first step."""
    thought: Thought | None = None
    score: float | None = None
    fate: Fate = Fate.OPEN


class Tree:
    """Nodes by path. The root is not a node: it has no thought."""

    def __init__(self) -> None:
        self._nodes: dict[NodePath, Node] = {}
        self.calibration: Calibration | None = None
        """The probabilities that scores count as; None: scores count as they are."""

    def __getitem__(self, path: NodePath) -> Node:
        return self._nodes[path]

    def __contains__(self, path: NodePath) -> bool:
        return path in self._nodes

    def __iter__(self) -> Iterator[Node]:
        # of a copy, which another thread may go through while the tree grows
        return iter(list(self._nodes.values()))

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        """A line for each node: its score, its fate, and its text below that of its parent."""
        lines = [f"Tree of {len(self):,} nodes"]
        for path in sorted(self._nodes):
            node = self._nodes[path]
            score = "      " if node.score is None else f"{node.score:.4f}"
            text = " ".join(node.thought.text.split()) if node.thought else "..."
            lines.append(f"{score} {node.fate:9} {'  ' * len(path)}{text:.80}")
        return "\n".join(lines)

    @property
    def tokens(self) -> int:
        """The number of generated tokens."""
        return sum(len(node.thought.token_ids) for node in self if node.thought)

    def get(self, path: NodePath) -> Node | None:
        """The node at `path`, or None."""
        return self._nodes.get(path)

    def add(self, path: NodePath) -> Node:
        """Make the node at `path`; it must be new and its parent must exist."""
        above = self._nodes.get(path[:-1])
        if path in self._nodes or (above is None and len(path) > 1):
            raise ValueError(f"node {path} exists already or has no parent")
        node = self._nodes[path] = Node(path, above)
        return node

    def drop(self, unwanted: Callable[[NodePath], bool]) -> None:
        """Forget the nodes that are `unwanted`, which must include their descendants."""
        self._nodes = {path: node for path, node in self._nodes.items() if not unwanted(path)}

    def chain(self, path: NodePath) -> list[Node]:
        """The nodes from the first step to `path`."""
        node = self._nodes[path] if path else None
        chain: list[Node] = []
        while node:
            chain.append(node)
            node = node.above
        return chain[::-1]

    def text(self, path: NodePath) -> str:
        """Text that the generator wrote from the root to `path`, without its thinking."""
        thoughts = (node.thought for node in self.chain(path))
        return "".join(each.text for each in thoughts if each and not each.thinking)

    def path_score(self, path: NodePath, how: Aggregation) -> float:
        """The value that a search gives a path: the aggregate of the values that count."""
        return aggregate([self.value(node) for node in self._aggregated(path, how)], how)

    def value(self, node: Node) -> float:
        """The probability that a node's score stands for; without a calibration, the score."""
        assert node.score is not None
        if self.calibration is None:
            return node.score
        final = node.thought is not None and not node.thought.goes_on
        return self.calibration.probability(node.score, final=final)

    @property
    def max_value(self) -> float:
        """The value of the best possible step."""
        best = self.calibration
        return max(best.final(MAX_SCORE), best.inner(MAX_SCORE)) if best else MAX_SCORE

    def counted_nodes(self, path: NodePath) -> list[Node]:
        """The nodes along `path` whose scores count, from the first step on.

        A step without text is scored as the chain without it, so its score counts only if that
        chain has none of its own: because its last step was not scored, or because no step of the
        path says anything.
        """
        nodes: list[Node] = []
        blank: list[Node] = []
        unscored = False  # whether there is text that no score has judged
        for node in self.chain(path):
            unscored = unscored or (node.thought is not None and not node.thought.blank)
            if node.score is not None:
                (nodes if unscored else blank).append(node)
                unscored = False
        return nodes or blank[:1]

    def _aggregated(self, path: NodePath, how: Aggregation) -> list[Node]:
        """The nodes whose scores are aggregated: with `last` the step itself, if it has one."""
        node = self._nodes[path]
        return [node] if how == "last" and node.score is not None else self.counted_nodes(path)

    def completion(self, path: NodePath, how: Aggregation) -> Completion:
        """The completion that a path makes: its score is the verifier's own, if there is any."""
        nodes = self._aggregated(path, how)
        scores = [node.score for node in nodes if node.score is not None]
        if not scores:
            return Completion(path, self.text(path), None)
        probability = self.path_score(path, how) if self.calibration else None
        return Completion(path, self.text(path), aggregate(scores, how), probability)

    def rank(self, path: NodePath, how: Aggregation) -> Rank:
        """The rank of a path whose last step is scored."""
        score = self._nodes[path].score
        assert score is not None
        return -self.path_score(path, how), -score, path

    def lock_score(self, path: NodePath, score: float) -> None:
        """Set the score of a node that has a thought and none yet."""
        node = self._nodes.get(path)
        if node and node.thought and node.score is None:
            node.score = quantise(score)

    def digest(self) -> str:
        """Hash over every node's path, token ids, stop reason and fate; not over scores."""
        sha = hashlib.sha256()
        for path in sorted(self._nodes):
            node = self._nodes[path]
            thought = node.thought
            ids = ",".join(map(str, thought.token_ids)) if thought else "-"
            stop = thought.stop if thought else "-"
            sha.update(f"{'.'.join(map(str, path))}|{ids}|{stop}|{node.fate}\n".encode())
        return sha.hexdigest()
