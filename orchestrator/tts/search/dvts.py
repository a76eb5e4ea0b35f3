"""Diverse verifier tree search: independent subtrees, greedy inside each.

n/beam_width subtrees that never wait for one another. Each grows beam_width candidates and goes on
from the best; the candidates of its last iteration are its completions.

    root ─┬─ 0  ✗              n=4, beam_width=2
          └─ 1 ──┬─ 1.0 ✓      completions of the first subtree: 1.0 and 1.1
                 └─ 1.1 ✓
    root ─┬─ 2 ──┬─ 2.0 ✗
          │      └─ 2.1 ─ ...
          └─ 3  ✗

After Beeching et al., "Scaling test-time compute" (2024) and search-and-learn.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import WidthConfig
from .protocol import Search
from .pruning import PruningSearch
from .step_search import Candidate, CandidateState, Pool
from .thought import Fate, SeedOf
from .tree import Node, Rank
from .votes import AnswerOf

ANSWERED = "boxed{"
"""A chain that holds this has its answer, and ends its subtree."""


class DvtsConfig(WidthConfig):
    """Parameters of diverse verifier tree search."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return DvtsSearch(self, seed)


class DvtsSearch(PruningSearch[DvtsConfig]):
    """One pool per subtree, whose best candidate alone is expanded."""

    def __init__(self, config: DvtsConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed, kept=1)
        self._finished: dict[int, list[Node]] = {}
        """The completions of each finished subtree."""
        width = config.beam_width
        for subtree in range(config.n // width):
            first = subtree * width
            self._open(((child,) for child in range(first, first + width)), key=subtree)

    def _decide(self, pool: Pool) -> None:
        if pool.ranked[0].active:
            best = pool.ranked[0].end
            for node in pool.ends:
                node.fate = Fate.PRUNED
            best.fate = Fate.EXPANDED
            self._open(((*best.path, c) for c in range(self.config.beam_width)), after=pool)
            return
        for node in pool.ends:
            node.fate = Fate.COMPLETED
        self._finished[pool.key] = pool.ends
        if len(self._finished) == self.config.n // self.config.beam_width:
            self._finish([node for ends in self._finished.values() for node in ends])

    def _is_active(self, pool: Pool, node: Node) -> bool:
        return super()._is_active(pool, node) and ANSWERED not in self.tree.text(node.path)

    def _shares(self, scores: Sequence[float]) -> list[int]:
        return [0 if place else self.config.beam_width for place in range(len(scores))]

    def _cutoff(self, pool: Pool) -> Rank | None:
        """The rank of the best candidate so far: only a better one will be expanded."""
        return pool.ranked[0].rank if pool.ranked else None

    def _pruned_below(self, pool: Pool, lowest: float) -> Rank | None:
        """The rank of the best candidate, once none can outrank it and it goes on.

        While another may win, and end the subtree, each is a completion and needs its score.
        """
        if not pool.ranked or pool.ranked[0].expected_score < lowest:
            return None
        best = pool.ranked[0]
        settled = best.active and all(
            each.state is CandidateState.READY
            or (each.state is CandidateState.SCORING and each.best_rank > best.best_rank)
            for each in pool.candidates
        )
        return best.best_rank if settled else None

    def _may_be_pruned(self, candidate: Candidate) -> bool:
        return True
