"""What a search has when it is stopped before its end: the chains that its tree holds by then."""

from __future__ import annotations

from .thought import Aggregation, Completion, Fate, NodePath
from .tree import Node, Tree

_NO_CHAIN = (Fate.PRUNED, Fate.LOOKAHEAD)


def completions_so_far(
    tree: Tree, how: Aggregation = "last", n: int | None = None
) -> tuple[Completion, ...]:
    """Completions of a tree that grows no further, in rank order, `n` at most.

    They are the chains that have ended; where none has, those that were still growing. What awaits
    its thought leaves the tree, and the fates of the others are settled.
    """
    tree.drop(lambda path: tree[path].thought is None)
    parents = {node.path[:-1] for node in tree if node.fate is not Fate.LOOKAHEAD}
    ends = [node for node in tree if node.path not in parents and node.fate not in _NO_CHAIN]
    ended = [node for node in ends if node.thought and not node.thought.goes_on]
    for node in tree:
        if node.path in parents and node.fate in (Fate.OPEN, Fate.COMPLETED):
            node.fate = Fate.EXPANDED  # completed: by its search; a sample went on from there
    for node in ends:
        node.fate = Fate.PRUNED
    scores = {node.path: _path_score(tree, node, how) for node in ended or ends}

    def rank(node: Node) -> tuple[bool, float, float, NodePath]:
        score = scores[node.path]
        return score is None, -(score or 0.0), -(node.score or 0.0), node.path

    ranked = sorted(ended or ends, key=rank)
    for node in ranked[n:] if n else []:
        node.fate = Fate.SURPLUS
    for node in ranked[:n]:
        node.fate = Fate.COMPLETED
    return tuple(
        Completion(node.path, tree.text(node.path), scores[node.path]) for node in ranked[:n]
    )


def _path_score(tree: Tree, node: Node, how: Aggregation) -> float | None:
    """The score of a path by its scored steps; None if it has none."""
    return tree.path_score(node.path, how) if tree.scores(node.path) else None
