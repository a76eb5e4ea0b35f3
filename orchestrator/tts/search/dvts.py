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

from .protocol import Search, WidthConfig
from .seeds import SeedOf
from .step_hints import EarlyPruner, StepHints, best_get, best_rank
from .step_search import Candidate, Pool, StepSearch
from .thought import Fate
from .tree import Node
from .votes import AnswerOf

ANSWERED = "boxed{"
"""A chain that holds this has its answer, and ends its subtree."""


class DvtsConfig(WidthConfig):
    """Parameters of diverse verifier tree search."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return DvtsSearch(self, seed)


class DvtsSearch(StepSearch[DvtsConfig]):
    """Decides one pool per subtree, whose best candidate alone is expanded."""

    def __init__(self, config: DvtsConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed)
        self._completed: dict[int, list[Node]] = {}
        """The completions of each subtree that has come to its end."""
        width = config.beam_width
        self.pruner = EarlyPruner(self, self._goes_on)
        self.hints = StepHints(self, best_get(width, places=1))
        for subtree in range(config.n // width):
            first = subtree * width
            self._open(((child,) for child in range(first, first + width)), key=subtree)

    def places(self, pool: Pool) -> int:
        """One place, in each subtree."""
        return 1

    def winners(self, pool: Pool) -> Sequence[Candidate]:
        """The rule: the best candidate goes on, unless it has ended."""
        return pool.ranked[:1]

    def _decide(self, pool: Pool) -> None:
        best = pool.ranked[0]
        for node in pool.ends:
            node.fate = Fate.PRUNED if best.active else Fate.COMPLETED
        if best.active:
            best.end.fate = Fate.EXPANDED
            children = range(self.config.beam_width)
            self._open(((*best.end.path, child) for child in children), after=pool)
            return
        self._completed[pool.key] = pool.ends
        if len(self._completed) == self.config.n // self.config.beam_width:
            self._finish([node for ends in self._completed.values() for node in ends])

    def _is_active(self, pool: Pool, node: Node) -> bool:
        return super()._is_active(pool, node) and ANSWERED not in self.tree.text(node.path)

    def _goes_on(self, pool: Pool) -> bool:
        """Whether the best candidate so far goes on, whatever the others score.

        While another may win, and end the subtree, each is a completion and needs its score.
        """
        best = pool.ranked[0]
        return best.active and all(
            each.rank is not None or (each.awaited and best_rank(each) > best_rank(best))
            for each in pool.candidates
        )
