"""Base of the built-in strategies: a search that grows a tree, collects asks and ends."""

from __future__ import annotations

from typing import Generic, TypeVar

from .config import SearchConfig
from .protocol import Search, SearchResult, Work
from .thought import Completion
from .tree import Tree, completions_so_far

Config = TypeVar("Config", bound=SearchConfig)


class TreeSearch(Search, Generic[Config]):
    """A strategy defines `tell`, which appends to `_asks` and finally calls `_end`."""

    tree: Tree

    def __init__(self, config: Config) -> None:
        self.config = config
        self.tree = Tree()
        self._asks: list[Work] = []
        self._result: SearchResult | None = None

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def result(self) -> SearchResult | None:
        """The completions, best first (unscored: by path)."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search; n completions at most."""
        if self._result is None:
            n, how = self.config.n, self.config.agg_strategy
            self._end(completions_so_far(self.tree, how, n))
        assert self._result is not None
        return self._result

    def _end(self, completions: tuple[Completion, ...]) -> None:
        """The search is over: these come out, and what is told from now on changes nothing."""
        self._result = SearchResult(completions, self.tree)
        self._asks.clear()
