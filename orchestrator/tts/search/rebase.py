"""REBASE, reward-balanced search: children shared out by a softmax of the scores.

    root ─┬─ 0 0.9 ──┬─ 0.0      n=4: the scores of an iteration share out the next n candidates
          ├─ 1 0.2 ✗ ├─ 0.1
          ├─ 2 0.7 ─ 2.0
          └─ 3 0.1 ✗ └─ 0.2

After Wu et al., "Inference scaling laws" (arXiv 2408.00724) and the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from .mcts import SeenValues
from .protocol import Search, StepConfig
from .seeds import SeedOf
from .step_hints import StepHints
from .step_search import Pool, StepSearch
from .thought import Completion, Fate
from .tree import Node
from .votes import AnswerOf


class RebaseConfig(StepConfig):
    """Parameters of REBASE. Completed and active chains always add up to n."""

    softmax_temperature: float = Field(default=0.2, ge=1e-3, le=1e3)
    """Towards 0 all children go to the best, large values share evenly."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return RebaseSearch(self, seed)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of n chains, until the search may end.

    Rounds are independent of one another, so what they vote for tells how sure the answer is, and a
    hard problem can get many. Their values are normalised between the least and the most seen.
    """

    may_end: Callable[[Sequence[Completion], int, bool], bool]
    """Whether to end after a round with these completions, given the tokens of the tree and whether
    there is no room for another round."""
    chains: int
    """Most chains of all rounds."""
    whole: bool
    """Whether a round is independent chains."""


class RebaseSearch(StepSearch[RebaseConfig]):
    """Shares out n, less the completed chains, among the active candidates."""

    def __init__(self, config: RebaseConfig, seed: SeedOf, rounds: Rounds | None = None) -> None:
        """`seed` maps a node to the seed of its sample; by default there is one round."""
        super().__init__(config, seed)
        self._rounds = rounds
        self._values = SeenValues()
        self._chains = 0
        """The chains of all rounds so far."""
        self._completed: list[Node] = []
        """The completions of this round."""
        self._earlier: list[Node] = []
        """The completions of earlier rounds."""
        self.hints = StepHints(self, self._shares)
        self._next_round()

    def _next_round(self) -> None:
        first, self._chains = self._chains, self._chains + self.config.n
        whole = self._rounds is not None and self._rounds.whole
        self._open(((child,) for child in range(first, self._chains)), whole=whole)

    def _shares(self, scores: Sequence[float]) -> list[int]:
        """The rule: how many children candidates with these scores, best first, get."""
        budget = self.config.n - len(self._completed)
        if self._rounds:
            scores = [self._values.normalised(score) for score in scores]
        return share_out(scores, budget, self.config.softmax_temperature)

    def _decide(self, pool: Pool) -> None:
        for end in pool.ends:
            self._values.extend(self._path_score(end))
        active = [candidate.end for candidate in pool.ranked_active]
        self._completed += [candidate.end for candidate in pool.ranked if not candidate.active]
        shares = self._shares([self._path_score(node) for node in active])
        for node, share in zip(active, shares, strict=True):
            node.fate = Fate.EXPANDED if share else Fate.PRUNED
        if not any(shares):
            self._end_round()
            return
        children = [
            (*node.path, child)
            for node, share in zip(active, shares, strict=True)
            for child in range(share)
        ]
        self._open(children, after=pool)

    def _end_round(self) -> None:
        """End the search, or begin another round."""
        ends = list(map(self._completion, self._completed))
        self._earlier += self._completed
        self._completed = []
        full = self._rounds is None or self._chains + self.config.n > self._rounds.chains
        if self._rounds is None or self._rounds.may_end(ends, self.tree.tokens, full):
            self._finish(self._earlier)
        else:
            self._next_round()


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
