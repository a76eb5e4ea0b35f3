"""The completions of a search that a limit cuts short."""

from __future__ import annotations

from .thought import Aggregation, Completion, Fate, NodePath
from .tree import Node, Tree


def completions_so_far(
    tree: Tree, how: Aggregation = "last", n: int | None = None
) -> tuple[Completion, ...]:
    """At most `n` completions of a tree that grows no further, in rank order.

    They are the chains that have ended or, if none has, those still growing. Nodes without a
    thought leave the tree, and the others get their final fates.
    """
    tree.drop(lambda path: tree[path].thought is None)
    parents = {node.path[:-1] for node in tree}
    ends = [node for node in tree if node.path not in parents and node.fate is not Fate.PRUNED]
    final = [node for node in ends if node.thought and not node.thought.goes_on]
    for node in tree:
        if node.path in parents and node.fate in (Fate.OPEN, Fate.COMPLETED):
            node.fate = Fate.EXPANDED  # completed: by its search; a sample went on from there
    for node in ends:
        node.fate = Fate.PRUNED

    def rank(node: Node) -> tuple[bool, float, float, NodePath]:
        unscored = not tree.counted_nodes(node.path)
        value = 0.0 if unscored else tree.path_score(node.path, how)
        return unscored, -value, -(node.score or 0.0), node.path

    ranked = sorted(final or ends, key=rank)
    for node in ranked[n:] if n else []:
        node.fate = Fate.SURPLUS
    for node in ranked[:n]:
        node.fate = Fate.COMPLETED
    return tuple(tree.completion(node.path, how) for node in ranked[:n])
