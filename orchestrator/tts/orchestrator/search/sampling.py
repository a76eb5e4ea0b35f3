"""Independent samples: cot, self-consistency, best-of-n and weighted best-of-n.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ...   n whole chains, each from one request; every step is a node
          └─ 1 ─ 1.0 ...

The four strategies grow the same tree; they differ in n, in whether the chains are scored, and in
how the answer is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from .config import SearchConfig
from .tree import Tree
from .types import (
    Completion,
    Expand,
    Fate,
    Generated,
    NodePath,
    Score,
    Scored,
    SearchResult,
    Work,
)


class SampleSearchConfig(SearchConfig):
    """Parameters of the sampling strategies."""

    scored: bool = True
    """Whether the verifier scores the chains."""


class SampleSearch:
    """The state machine; see `types.Search` for the contract."""

    def __init__(self, config: SampleSearchConfig, seed: Callable[[NodePath], int]) -> None:
        """`seed` maps a node to the seed of the sample that becomes it."""
        self.config = config
        self.tree = Tree()
        self._asks: list[Work] = []
        self._leaves: list[NodePath] = []
        self._awaited = config.n
        for child in range(config.n):
            path = self.tree.add((child,)).path
            self._asks.append(Expand(path, seed(path), config.sampling, whole=True))

    @property
    def done(self) -> bool:
        """True once every chain is generated and, if wanted, scored."""
        return not self._awaited

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if isinstance(result, Scored):
            if self.tree.lock_score(result.node, result.score):
                self._awaited -= 1
            return
        node = self.tree.get(result.node)
        if node is None or node.thought is not None:
            return
        paths = self._grow(result)
        self._leaves.append(paths[-1])
        self._awaited -= 1
        if self.config.scored:
            wanted = paths[-1:] if self.config.agg_strategy == "last" else paths
            self._awaited += len(wanted)
            self._asks += [Score(path) for path in wanted]

    def result(self) -> SearchResult:
        """The n chains, best first (unscored: by path); raises RuntimeError before `done`."""
        if not self.done:
            raise RuntimeError("the search is not done")
        completions = [
            Completion(path, self.tree.text(path), self._score(path)) for path in self._leaves
        ]
        completions.sort(key=lambda done: (-(done.score or 0.0), done.node))
        return SearchResult(tuple(completions))

    def _grow(self, result: Generated) -> list[NodePath]:
        paths = [result.node[:1] + (0,) * depth for depth in range(len(result.thoughts))]
        for path, thought in zip(paths, result.thoughts, strict=True):
            node = self.tree.get(path) or self.tree.add(path)
            node.thought, node.fate = thought, Fate.EXPANDED
        self.tree[paths[-1]].fate = Fate.COMPLETED
        return paths

    def _score(self, path: NodePath) -> float | None:
        if not self.config.scored:
            return None
        return self.tree.path_score(path, self.config.agg_strategy)
