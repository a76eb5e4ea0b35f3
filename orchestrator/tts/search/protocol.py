"""The interface of a search: ask, tell, result.

A search is a state machine for one problem, without IO, clock or engine. `ask()` returns the work
it wants now, each piece once; `tell(result)` takes results in any order. The tree, the scores and
the result depend only on the configuration, the seeds and what the engines answer for a given node,
never on the order of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from .advice import Decision
from .ahead import Hints
from .cut_short import completions_so_far
from .thought import Completion, Generated, Scored, Work
from .tree import Tree

Limit = Literal["tokens", "deadline"]
"""The limits that may cut a search short: its token budget, or its deadline."""


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
    """One problem's search. A strategy defines `ask`, `tell` and `result`; the rest is optional."""

    tree: Tree | None = None
    """All nodes so far, for whoever watches; None if the search shows none before its result."""
    hints: Hints = Hints()
    """Hints that never change the result: the scores that it can do without, the expansions that
    idle engines may begin before they are asked for."""

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
