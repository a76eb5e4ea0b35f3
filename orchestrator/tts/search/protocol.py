"""The interface of a search: ask, tell, result.

A search is a state machine for one problem, without IO, clock or engine. `ask()` returns the work
it wants now, each piece once. `tell(result)` accepts results in any order; one that is late,
unknown or a duplicate changes nothing. The tree, the scores and the result depend only on the
configuration, the seeds and what the engines answer for a given node, never on the order of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .advice import Decision
from .thought import Completion, Confidence, NodePath, Sampling, Thought
from .tree import Tree, completions_so_far

Limit = Literal["tokens", "deadline"]
"""The limits that may cut a search short: its token budget, or its deadline."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Generate below the parent of `node`: one thought, or with `whole` the rest of the chain.

    The first thought becomes `node`, each further one child 0 of the one before it. Thinking that
    ends is answered together with what follows it.
    """

    node: NodePath
    seed: int
    sampling: Sampling
    whole: bool = False
    confidence: Confidence | None = None
    """What to find out of a whole chain's confidence; None: nothing."""
    most: int | None = None
    """An answer of more tokens than this is of no use, and its end need not be written."""


@dataclass(frozen=True, slots=True)
class Score:
    """Score the path that ends in `node` (the score of its last step).

    The verifier reads the steps of the path that have text, each as a turn; with `own_turn` the
    last step is a turn even without text. Such a node need not have been generated. With
    `may_be_pruned`, siblings may outrank the node whatever its score is, so that its score turns
    out not to be needed (`Search.needs`).
    """

    node: NodePath
    own_turn: bool = False
    may_be_pruned: bool = False


Work = Expand | Score


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to an Expand: one thought, with what was thought before it; `whole`, many."""

    node: NodePath
    thoughts: tuple[Thought, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to a Score: the verifier's probability that the step is right, in [0, 1]."""

    node: NodePath
    score: float
    tokens: int = 0
    """Tokens that the verifier generated for it."""
    request: bytes = b""
    """Equal for nodes whose score is that of one request."""


@dataclass
class ResumedWork:
    """What is known of one problem by node before its search asks: the work of earlier sessions."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    """The node is the first thought's; each further one is child 0 of the one before."""
    scores: dict[NodePath, Scored] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many requests it saves."""
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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search: its completions in rank order, and the tree that they end in.

    There are n, or fewer where the vote was decided before or a limit ended the search.
    """

    completions: tuple[Completion, ...]
    tree: Tree
    limit: Limit | None = None
    """The limit that cut the search short; None if it finished."""
    lost_tokens: int = 0
    """Tokens that were generated when the budget had no room for them: asked for, in no tree."""
    decision: Decision | None = None
    """The advice to `auto` and what came of it; None for other searches."""


class Search(ABC):
    """One problem's search. A strategy defines `ask`, `tell` and `result`; the rest is optional.

    The optional parts let a search be watched (`tree`), be ended before its end (`stop`), say which
    scores it needs after all (`needs`), and name expansions that idle engines may begin before they
    are asked for (`foresee`, `expandable`). The last three never change the result.
    """

    tree: Tree | None = None
    """All nodes so far, for whoever watches; None if the search shows none before its result."""

    @abstractmethod
    def ask(self) -> list[Work]:
        """The work wanted now and not asked before.

        It may name nodes below those that have been told, in any number and any order.
        """

    @abstractmethod
    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones change nothing.

        Raises ValueError for a score that is not a probability.
        """

    @abstractmethod
    def result(self) -> SearchResult | None:
        """The outcome, or None as long as further results could change it.

        It is called after every result, so it must be cheap: compute the outcome once.
        """

    def stop(self) -> SearchResult:
        """End the search now with its best result so far; it receives no further results.

        By default the completions are the chains of `tree` (see `completions_so_far`), by the
        scores of their last steps.
        """
        if result := self.result():
            return result
        tree = self.tree if self.tree is not None else Tree()
        return SearchResult(completions_so_far(tree), tree)

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.result() is not None

    def needs(self) -> dict[NodePath, bool]:
        """Nodes whose requested score had an open need, and whether it is needed.

        False: it can no longer change anything, and the node is pruned without it. True: the search
        is not likely to do without it, so where the verifier is crowded it goes before the others.
        What was returned once is not returned again, unless True has become False. The default is
        none.
        """
        return {}

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for later, best first: shallow, then by chance.

        Yields at most as many children as the search could ask for; below children in `answered` it
        continues with the next level. The default is none.
        """
        return iter(())

    def expandable(self) -> Container[NodePath]:
        """Nodes that await the search's decision and may yet be expanded.

        Foreseen work below none of these nodes will never be asked for. The default is none.
        """
        return ()
