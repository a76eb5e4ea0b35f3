"""Work ahead of what a search has asked for: the optional part of the protocol.

Nothing here changes a result: a search without hints grows the same tree.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from .thought import Expand, NodePath, Scored, Thought


@dataclass
class ResumedWork:
    """The answers of earlier sessions about one problem, by node."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    """The node is the first thought's; each further one is child 0 of the one before."""
    scores: dict[NodePath, Scored] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of requests that it saves."""
        return len(self.thoughts) + len(self.scores)


@dataclass(frozen=True, slots=True)
class Guess:
    """An expansion that may be asked for later, exactly as it would be asked.

    `level` counts from 1, for children of nodes that the search is about to decide on; `chance` is
    a rough probability that it will be asked for.
    """

    work: Expand
    level: int
    chance: float


class Hints:
    """The hints that a search gives to its driver; by default none."""

    def needs(self) -> dict[NodePath, bool]:
        """Nodes whose score was asked for as one that may be pruned, and whether it is needed.

        False: it can no longer change anything, and the node is pruned without it. True: the search
        is not likely to do without it, so where the verifier is crowded it goes before the others.
        What was returned once is not returned again, unless True has become False.
        """
        return {}

    def guess(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for later, best first: shallow, then by chance.

        Yields at most as many children as the search could ask for; below children in `answered` it
        continues with the next level.
        """
        return iter(())

    def expandable(self) -> Container[NodePath]:
        """Nodes that await the search's decision and may yet be expanded.

        Guesses below none of these nodes will never be asked for.
        """
        return ()
