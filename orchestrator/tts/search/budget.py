"""A budget of generated tokens for any search, exact under every schedule.

    engines ──results in any order──► BudgetedSearch ──in the order asked──► the search
                                       counts tokens

The search receives every result in the order in which it asked, so its next requests depend on the
answers alone and not on which came first. Tokens are counted in that order. The first expansion
that exceeds the budget ends the generation: neither it nor anything asked for later is part of the
tree. Thoughts generated before that are still scored; then the search stops with its best answer so
far. So the tree is a function of the seeds and the budget, and a search that stays within its
budget grows the same tree without one.

The cost is less overlap within one problem: an answer waits for those that were asked for before
it. Speculative tokens that were never asked for do not count, because their number depends on
timing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from .protocol import Expand, Generated, Guess, Score, Scored, Search, SearchResult, Work
from .thought import NodePath, Thought

_Key = tuple[bool, NodePath]
"""Whether it is a score, and of which node."""


class BudgetedSearch(Search):
    """A search whose tree holds `tokens` generated tokens at most."""

    def __init__(self, inner: Search, tokens: int) -> None:
        """`inner` must not have been asked or told anything yet; `tokens` is 1 or more."""
        self.tree = inner.tree
        self._inner = inner
        self._left = tokens
        self._asks: list[Work] = []
        self._unwanted: list[NodePath] = []
        self._needed: list[NodePath] = []
        self._asked: dict[_Key, None] = {}
        """Requests of the search without an answer so far, in the order of asking."""
        self._arrived: dict[_Key, Generated | Scored] = {}
        """Answers that wait for those asked for before them."""
        self._result: SearchResult | None = None
        self._take_asks()

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        key = isinstance(result, Scored), result.node
        if self._result is None and key in self._asked:
            self._arrived.setdefault(key, result)
            self._tell_in_order()

    def result(self) -> SearchResult | None:
        """The search's own result, or its result so far when the budget was spent."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search."""
        self._result = self._result or self._inner.stop()
        self._asks.clear()
        return self._result

    def unwanted(self) -> list[NodePath]:
        """See Search."""
        nodes, self._unwanted = self._unwanted, []
        return nodes

    def needed(self) -> list[NodePath]:
        """See Search."""
        nodes, self._needed = self._needed, []
        return [node for node in nodes if (True, node) in self._asked]

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Search; nothing is foreseen once the budget is spent."""
        return self._inner.foresee(answered) if self._left else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Search."""
        return self._inner.expandable() if self._left else ()

    def _tell_in_order(self) -> None:
        """Tell the search all that is due, and end it when that was the last."""
        while self._result is None and (key := next(iter(self._asked), None)) in self._arrived:
            assert key is not None
            del self._asked[key]
            result = self._arrived.pop(key)
            if isinstance(result, Generated) and not self._pay(result):
                continue
            self._inner.tell(result)
            self._take_asks()
        if self._result is None and not self._left and not self._asked:
            self._result = replace(self._inner.stop(), limit="tokens")

    def _pay(self, result: Generated) -> bool:
        """Take an expansion's tokens from the budget; False if they do not fit."""
        tokens = sum(len(thought.token_ids) for thought in result.thoughts)
        fits = tokens <= self._left
        self._left = self._left - tokens if fits else 0
        if not self._left:
            for key in [key for key in self._asked if not key[0]]:
                self._withdraw(key)
        return fits

    def _take_asks(self) -> None:
        """Collect what the search wants after what it was told last, in its order."""
        self._result = self._inner.result()
        self.tree = self._inner.tree
        self._needed += self._inner.needed()
        for node in self._inner.unwanted():
            self._withdraw((True, node))
            self._unwanted.append(node)
        for work in self._inner.ask():
            if isinstance(work, Expand) and not self._left:
                continue
            self._asked[isinstance(work, Score), work.node] = None
            self._asks.append(work)
        if self._result:
            self._asks.clear()

    def _withdraw(self, key: _Key) -> None:
        """Forget what was asked for: no answer to it will be told."""
        self._asked.pop(key, None)
        self._arrived.pop(key, None)
        self._asks = [work for work in self._asks if (isinstance(work, Score), work.node) != key]
