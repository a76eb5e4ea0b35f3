"""REBASE, reward-balanced search: children shared out by a softmax of the scores.

    root ─┬─ 0 0.9 ──┬─ 0.0      n=4: the scores of an iteration share out the next n candidates
          ├─ 1 0.2 ✗ ├─ 0.1
          ├─ 2 0.7 ─ 2.0
          └─ 3 0.1 ✗ └─ 0.2

After Wu et al., "Inference scaling laws" (arXiv 2408.00724) and the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from .base import StepConfig
from .foresight import ForesightSearch
from .protocol import Search
from .step_search import Pool
from .thought import Fate, SeedOf
from .tree import Node
from .votes import AnswerOf


class RebaseConfig(StepConfig):
    """Parameters of REBASE. Completed and active chains always add up to n."""

    softmax_temperature: float = Field(default=0.2, ge=1e-3, le=1e3)
    """Towards 0 all children go to the best, large values share evenly."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return RebaseSearch(self, seed)


class RebaseSearch(ForesightSearch[RebaseConfig]):
    """Shares out n, less the completed chains, among the active candidates."""

    def __init__(self, config: RebaseConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed)
        self._completed: list[Node] = []
        self._open_root()

    def _open_root(self) -> None:
        self._open((child,) for child in range(self.config.n))

    def _shares(self, scores: Sequence[float]) -> list[int]:
        budget = self.config.n - len(self._completed)
        return share_out(scores, budget, self.config.softmax_temperature)

    def _decide(self, pool: Pool) -> None:
        active, ended = self._active_and_ended(pool)
        self._completed += ended
        shares = self._shares([self._path_score(node) for node in active])
        for node, share in zip(active, shares, strict=True):
            node.fate = Fate.EXPANDED if share else Fate.PRUNED
        if not any(shares):
            self._finish(self._completed)
            return
        children = [
            (*node.path, child)
            for node, share in zip(active, shares, strict=True)
            for child in range(share)
        ]
        self._open(children, after=pool)


def share_out(scores: Sequence[float], budget: int, temperature: float) -> list[int]:
    """Children per score, adding up to `budget`; `scores` are in rank order.

    Each gets its softmax share, rounded up, of the budget that is left.
    """
    best = max(scores, default=0.0)
    weights = [math.exp((score - best) / temperature) for score in scores]
    shares = []
    for rank, weight in enumerate(weights):
        # rounded first: float noise must not turn a whole number of children into one more
        share = math.ceil(round(budget * weight / math.fsum(weights[rank:]), 9)) if budget else 0
        shares.append(share)
        budget -= share
    return shares
