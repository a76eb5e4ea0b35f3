"""Independent samples: cot, self-consistency, best-of-n and weighted best-of-n.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ...   n whole chains, each from one request; every step is a node
          └─ 1 ─ 1.0 ...

The four strategies grow the same tree; they differ in n, in whether the chains are scored, and in
how the answer is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from .config import SearchConfig
from .early_stop import AnswerOf, EarlyStop
from .tree import Tree
from .types import (
    Completion,
    Expand,
    Fate,
    Generated,
    Guess,
    NodePath,
    Score,
    Scored,
    SearchResult,
    Thought,
    Work,
)


class SampleSearchConfig(SearchConfig):
    """Parameters of the sampling strategies."""

    scored: bool = True
    """Whether the verifier scores the chains."""
    early_stop: bool = False
    """End once the missing chains cannot change the vote (weighted if scored, else majority)."""


class SampleSearch:
    """The state machine; see `types.Search` for the contract."""

    def __init__(
        self,
        config: SampleSearchConfig,
        seed: Callable[[NodePath], int],
        answer_of: AnswerOf | None = None,
    ) -> None:
        """`seed` maps a node to the seed of its sample; `answer_of` is for `early_stop` only."""
        self.config = config
        self.tree = Tree()
        self._asks: list[Work] = []
        self._generated: dict[int, NodePath] = {}
        """Last step of every generated chain."""
        self._unscored: dict[int, int] = {}
        """Scores that a generated chain still waits for."""
        self._leaves: dict[int, NodePath] = {}
        """Last step of the chains that wait for nothing more."""
        self._stop = EarlyStop.wanted(config.early_stop, config.n, answer_of)
        self._counted = 0
        """Chains from the first on that early stop has counted."""
        self._wanted = config.n
        for chain in range(config.n):
            path = self.tree.add((chain,)).path
            self._asks.append(Expand(path, seed(path), config.sampling, whole=True))

    @property
    def done(self) -> bool:
        """True once every chain that is wanted is generated and, if wanted, scored."""
        return len(self._leaves) == self._wanted

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if self.done:
            return
        if isinstance(result, Scored):
            if self.tree.lock_score(result.node, result.score):
                self._unscored[result.node[0]] -= 1
        else:
            node = self.tree.get(result.node)
            if node is None or node.thought is not None:
                return
            self._grow(result)
        self._settle(result.node[0])

    def unwanted(self) -> list[NodePath]:
        """None: every score that is asked for counts in the vote."""
        return []

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """None: everything is asked for at once."""
        return iter(())

    def expandable(self) -> Container[NodePath]:
        """None: chains are generated whole."""
        return ()

    def result(self) -> SearchResult:
        """The chains, best first (unscored: by path); raises RuntimeError before `done`."""
        if not self.done:
            raise RuntimeError("the search is not done")
        completions = [
            Completion(path, self.tree.text(path), self._score(path))
            for path in self._leaves.values()
        ]
        completions.sort(key=lambda done: (-(done.score or 0.0), done.node))
        return SearchResult(tuple(completions))

    def _grow(self, result: Generated) -> None:
        """Take in one chain, a node per step, and ask for the scores it needs."""
        paths = [result.node[:1] + (0,) * depth for depth in range(len(result.thoughts))]
        for path, thought in zip(paths, result.thoughts, strict=True):
            node = self.tree.get(path) or self.tree.add(path)
            node.thought, node.fate = thought, Fate.EXPANDED
        self.tree[paths[-1]].fate = Fate.COMPLETED
        wanted: list[NodePath] = []
        if self.config.scored:
            wanted = paths[-1:] if self.config.agg_strategy == "last" else paths
        self._asks += [Score(path, result.node, completes=path is paths[-1]) for path in wanted]
        self._generated[result.node[0]] = paths[-1]
        self._unscored[result.node[0]] = len(wanted)

    def _settle(self, chain: int) -> None:
        """Count a chain that waits for nothing more."""
        if chain in self._leaves or self._unscored.get(chain) != 0:
            return
        self._leaves[chain] = self._generated[chain]
        if self._stop and self._decided_by(self._stop):
            self._wanted = self._counted
            self.tree.drop(lambda path: path[0] >= self._wanted)
            self._leaves = {chain: self._leaves[chain] for chain in range(self._wanted)}
            self._asks.clear()

    def _decided_by(self, stop: EarlyStop) -> bool:
        """Count the chains in their order, so that timing cannot move the stop."""
        while not stop.decided and self._counted in self._leaves:
            leaf = self._leaves[self._counted]
            score = self._score(leaf)
            stop.add(self.tree.text(leaf), 1.0 if score is None else score)
            self._counted += 1
        return stop.decided

    def _score(self, path: NodePath) -> float | None:
        if not self.config.scored:
            return None
        return self.tree.path_score(path, self.config.agg_strategy)
