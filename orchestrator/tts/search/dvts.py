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

from collections.abc import Callable, Sequence
from typing import Self

from pydantic import Field, model_validator

from .config import check_width
from .early_stop import AnswerOf
from .step_search import Candidate, Pool, Rank, VotingConfig, VotingSearch
from .tree import Node
from .types import Fate, NodePath

ANSWERED = "boxed{"
"""A chain that holds this has its answer; its subtree ends (search-and-learn's rule)."""


class DvtsConfig(VotingConfig):
    """Parameters of diverse verifier tree search."""

    beam_width: int = Field(4, ge=1)
    """Candidates per iteration of a subtree; there are n/beam_width subtrees."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_width(self.n, self.beam_width)
        return self


class DvtsSearch(VotingSearch[DvtsConfig]):
    """The state machine; see `types.Search` for the contract."""

    def __init__(
        self,
        config: DvtsConfig,
        seed: Callable[[NodePath], int],
        answer_of: AnswerOf | None = None,
    ) -> None:
        """See VotingSearch."""
        super().__init__(config, seed, answer_of)
        self._finished: dict[int, list[Node]] = {}
        """Completions by subtree."""
        self._counted = 0
        """Subtrees from the first on that early stop has counted."""
        width = config.beam_width
        for subtree in range(config.n // width):
            first = subtree * width
            self._open(((child,) for child in range(first, first + width)), key=subtree)

    def _decide(self, pool: Pool) -> None:
        best = pool.ranked[0][1]
        if self._active(pool, best):
            for node in pool.ends:
                node.fate = Fate.PRUNED
            best.fate = Fate.EXPANDED
            self._open(((*best.path, c) for c in range(self.config.beam_width)), after=pool)
            return
        for node in pool.ends:
            node.fate = Fate.COMPLETED
        self._finished[pool.key] = pool.ends
        subtrees = self.config.n // self.config.beam_width
        if self._decided_in_order():
            self.tree.drop(lambda path: path[0] >= self._counted * self.config.beam_width)
            subtrees = self._counted
        if all(subtree in self._finished for subtree in range(subtrees)):
            self._finish([node for subtree in range(subtrees) for node in self._finished[subtree]])

    def _active(self, pool: Pool, node: Node) -> bool:
        return super()._active(pool, node) and ANSWERED not in self.tree.text(node.path)

    def _shares(self, scores: Sequence[float]) -> list[int]:
        return [0 if place else self.config.beam_width for place in range(len(scores))]

    def _bar(self, pool: Pool) -> Rank | None:
        """The rank of the best candidate so far: only a better one will be expanded."""
        return pool.ranked[0][0] if pool.ranked else None

    def _needless(self, pool: Pool) -> list[Candidate]:
        """All that are left, once they cannot take the place of a best one that goes on.

        While another may win, and end the subtree, each is a completion and needs its score.
        """
        if not pool.ranked or -pool.ranked[0][0][0] < pool.lowest_bound:
            return []
        bar, best = pool.ranked[0]
        left = [candidate for candidate in pool.candidates if not candidate.ready]
        needless = self._active(pool, best) and all(
            candidate.unscored and self._best_rank(candidate) > bar for candidate in left
        )
        return left if needless else []

    def _decided_in_order(self) -> bool:
        """Count the finished subtrees in their order, so that timing cannot move the stop."""
        while not self._decided and self._counted in self._finished:
            self._count(self._finished[self._counted])
            self._counted += 1
        return self._decided
