"""Independent samples: greedy, majority vote, best-of-n and weighted best-of-n.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ...   n whole chains, each from one request; every step is a node
          └─ 1 ─ 1.0 ...

The four strategies grow the same tree; they differ in n, in whether the chains are scored, and in
how the answer is chosen. `adaptive_vote` samples the same chains in rounds.
"""

from __future__ import annotations

from .base import SearchConfig, TreeSearch
from .protocol import Expand, Generated, Score, Scored, Search
from .thought import Completion, Fate, NodePath, SeedOf
from .votes import AnswerOf


class SampleSearchConfig(SearchConfig):
    """Parameters of the sampling strategies."""

    scored: bool = True
    """Whether the verifier scores the chains."""

    @property
    def scores_steps(self) -> bool:
        """See SearchConfig: the score of a whole chain is that of its last step, or of all."""
        return self.scored and self.agg_strategy != "last"

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return SampleSearch(self, seed)


class SampleSearch(TreeSearch[SampleSearchConfig]):
    """The state machine. Nothing is foreseen: all whole chains are asked for at once.

    A strategy that samples in rounds defines `_more`.
    """

    def __init__(self, config: SampleSearchConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config)
        self._seed = seed
        self._generated: dict[int, NodePath] = {}
        """By chain: the last step of every generated one."""
        self._unscored: dict[int, set[NodePath]] = {}
        """By generated chain: the steps whose scores it still waits for."""
        self._leaves: dict[int, NodePath] = {}
        """By chain that waits for nothing more: its last step."""
        self._wanted = 0
        """How many chains, from the first on, have been asked for."""
        self._open(self._more())

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result."""
        if self._result:
            return
        chain = result.node[0]
        if isinstance(result, Scored):
            if result.node not in self._unscored.get(chain, ()):
                return
            self.tree.lock_score(result.node, result.score)
            self._unscored[chain].remove(result.node)
        else:
            node = self.tree.get(result.node)
            if node is None or node.thought is not None:
                return
            self._grow(result)
        if not self._unscored[chain]:
            self._complete(chain)

    def _more(self) -> int:
        """How many chains to ask for now that all those asked for are complete; 0 ends it."""
        return self.config.n - self._wanted

    def _open(self, chains: int) -> None:
        """Ask for so many chains more."""
        for chain in range(self._wanted, self._wanted + chains):
            path = self.tree.add((chain,)).path
            self._asks.append(self._expand(path))
        self._wanted += chains

    def _expand(self, path: NodePath) -> Expand:
        """What asks for a chain."""
        return Expand(path, self._seed(path), self.config.sampling, whole=True)

    def _grow(self, result: Generated) -> None:
        """Take in one chain, a node per step, and ask for the scores it needs."""
        paths = [result.node[:1] + (0,) * depth for depth in range(len(result.thoughts))]
        for path, thought in zip(paths, result.thoughts, strict=True):
            node = self.tree.get(path) or self.tree.add(path)
            node.thought, node.fate = thought, Fate.EXPANDED
        self.tree[paths[-1]].fate = Fate.COMPLETED
        wanted = self.tree.judged(paths[-1]) if self.config.scores_steps else paths[-1:]
        asks = [Score(path) for path in wanted] if self.config.scored else []
        self._asks += asks
        self._generated[result.node[0]] = paths[-1]
        self._unscored[result.node[0]] = {ask.node for ask in asks}

    def _complete(self, chain: int) -> None:
        """The chain waits for nothing more; so the search may be over, or ask for further ones."""
        self._leaves[chain] = self._generated[chain]
        if len(self._leaves) < self._wanted:
            return
        if more := self._more():
            self._open(more)
        else:
            self._end(self._ranked())

    def _ranked(self) -> tuple[Completion, ...]:
        leaves = sorted(self._leaves.values())
        if self.config.scored:
            self._rank(leaves)
        return tuple(map(self._completion, leaves))

    def _rank(self, leaves: list[NodePath]) -> None:
        """Sort the ends of scored chains, best first."""
        leaves.sort(key=lambda path: self.tree.rank(path, self.config.agg_strategy))

    def _completion(self, leaf: NodePath) -> Completion:
        return self.tree.completion(leaf, self.config.agg_strategy)
