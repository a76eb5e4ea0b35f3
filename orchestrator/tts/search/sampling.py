"""Independent samples: greedy, majority vote, best-of-n and weighted best-of-n.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ...   n whole chains, each from one request; every step is a node
          └─ 1 ─ 1.0 ...

The four strategies grow the same tree; they differ in n, in whether the chains are scored, and in
how the answer is chosen. `adaptive_vote` samples the same chains in rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import SearchConfig
from .protocol import Search
from .seeds import SeedOf
from .step_search import Candidate, Pool, StepSearch
from .thought import Fate, NodePath, Stop, Thought
from .tree import Node, Rank
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


class SampleSearch(StepSearch[SampleSearchConfig]):
    """Decides whole chains in one pool; a strategy that samples in rounds defines `_more`."""

    def __init__(self, config: SampleSearchConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed)
        self._ends: list[Node] = []
        """The last steps of the chains so far, in the order of their paths."""
        self._go_on()

    def _decide(self, pool: Pool) -> None:
        self._ends += pool.ends
        self._go_on()

    def _go_on(self) -> None:
        """Ask for further chains, or end the search."""
        first = len(self._ends)
        if more := self._more():
            self._open((chain,) for chain in range(first, first + more))
        else:
            self._finish(self._ends)

    def _more(self) -> int:
        """How many chains to ask for now that all those asked for are complete; 0 ends it."""
        return self.config.n - len(self._ends)

    def _write(self, candidate: Candidate, thoughts: Sequence[Thought]) -> None:
        super()._write(candidate, thoughts)
        cut = thoughts[-1].stop is Stop.CUT
        candidate.end.fate = Fate.PRUNED if cut else Fate.COMPLETED

    def _nodes_to_score(self, candidate: Candidate) -> list[NodePath]:
        return super()._nodes_to_score(candidate) if self.config.scored else []

    def _rank(self, node: Node) -> Rank:
        return super()._rank(node) if self.config.scored else (0.0, 0.0, node.path)
