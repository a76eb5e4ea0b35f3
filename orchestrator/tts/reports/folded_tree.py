"""A tree on few lines: equal siblings are folded into one branch, and the newest branches shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tts.search import Fate, Node, NodePath

_MOST_ALIVE = (Fate.EXPANDED, Fate.OPEN, Fate.COMPLETED, Fate.SURPLUS, Fate.LOOKAHEAD, Fate.PRUNED)


@dataclass(eq=False)
class Branch:
    """Siblings of one text, and below them all that grew on any of them. The root has no nodes."""

    parent: Branch | None = None
    text: str = ""
    nodes: list[Node] = field(default_factory=list)
    children: dict[str, Branch] = field(default_factory=dict)
    newest: int = -1
    """Place of its newest node among all, in the order in which they came."""

    @property
    def score(self) -> float | None:
        """The first score there is: equal siblings are scored by one call."""
        return next((node.score for node in self.nodes if node.score is not None), None)

    @property
    def fate(self) -> Fate:
        """What became of the one that came furthest."""
        return min((node.fate for node in self.nodes), key=_MOST_ALIVE.index)

    def below(self) -> Iterator[Branch]:
        """All branches below this one, each before its own."""
        for child in self.children.values():
            yield child
            yield from child.below()

    def chain(self) -> Iterator[Branch]:
        """The branch and those above it, without the root."""
        branch: Branch | None = self
        while branch and branch.parent:
            yield branch
            branch = branch.parent


def folded(nodes: Iterable[Node]) -> Branch:
    """The root of the tree that `nodes`, in the order in which they came, make up.

    Nodes without a thought, and those below one that is left out, are left out.
    """
    root = Branch()
    branches: dict[NodePath, Branch] = {(): root}
    for place, node in enumerate(nodes):
        parent = branches.get(node.path[:-1])
        if parent is None or node.thought is None:
            continue
        text = " ".join(node.thought.text.split())
        branch = parent.children.setdefault(text, Branch(parent, text))
        branch.nodes.append(node)
        branch.newest = place
        branches[node.path] = branch
    return root


def newest(root: Branch, lines: int) -> list[Branch]:
    """At most `lines` branches, each after the one it grows on: the newest and those above them.

    Of a branch that is deeper than `lines` the lowest part is taken.
    """
    taken: set[Branch] = set()
    for branch in sorted(root.below(), key=lambda branch: branch.newest, reverse=True):
        missing = [each for each in branch.chain() if each not in taken]
        if len(taken) + len(missing) > lines:
            if not taken:
                taken.update(missing[:lines])
            break
        taken.update(missing)
    return [branch for branch in root.below() if branch in taken]
