"""Beam search over steps, after Hugging Face search-and-learn.

n beams in all. Each iteration grows n candidates below the kept beams, scores every one, moves the
ended chains out and keeps the best n/beam_width of the others.

    iteration 1      iteration 2             n=4, beam_width=2: keep 2, expand to 4 again
    root ─┬─ 0  ✗
          ├─ 1 ──┬─ 1.0 ✗
          │      └─ 1.1 ─ ...
          ├─ 2 ──┬─ 2.0 ─ ...
          │      └─ 2.1 ✗
          └─ 3  ✗

Differences from search-and-learn are listed in docs/reference/strategies.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from .base import WidthConfig
from .protocol import Search
from .pruning import PruningSearch
from .step_search import Candidate, Pool
from .thought import Fate, NodePath, SeedOf
from .tree import Node, Rank
from .votes import AnswerOf


class BeamSearchConfig(WidthConfig):
    """Parameters of beam search. `n` is also the number of candidates per iteration."""

    filter_duplicates: bool = False
    """Keep only one of the active beams that have the same text."""
    sort_completed: bool = False
    """Search on until nothing is active and return the n best; else the first n complete."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return BeamSearch(self, seed)


UNREACHABLE: Rank = (float("-inf"), float("-inf"), ())
"""A rank that is better than that of any candidate."""


class BeamSearch(PruningSearch[BeamSearchConfig]):
    """Keeps the n/beam_width best of each iteration's n candidates."""

    def __init__(self, config: BeamSearchConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed, kept=config.n // config.beam_width)
        self._completed: list[Node] = []
        self._open((child,) for child in range(config.n))

    def _decide(self, pool: Pool) -> None:
        active, ended = self._active_and_ended(pool)
        self._completed += ended
        kept = self._keep(active) if not self._enough() else []
        for node in active:
            node.fate = Fate.PRUNED
        for node in kept:
            node.fate = Fate.EXPANDED
        if kept:
            self._open(self._children(kept), after=pool)
            return
        if self.config.sort_completed:
            self._completed.sort(key=self._rank)
        for node in self._completed[self.config.n :]:
            node.fate = Fate.SURPLUS
        self._finish(self._completed[: self.config.n])

    def _shares(self, scores: Sequence[float]) -> list[int]:
        return [self.config.beam_width if place < self._kept else 0 for place in range(len(scores))]

    def _cutoff(self, pool: Pool) -> Rank | None:
        """The rank of the last beam that will be kept, if no better ones come."""
        if self._enough(pool.ended):
            return UNREACHABLE
        if len(pool.ranked_active) < self._kept:
            return None
        if not self.config.filter_duplicates:
            return pool.ranked_active[self._kept - 1].rank
        active = (candidate.end for candidate in pool.ranked_active)
        last_kept = next(islice(self._eligible(active), self._kept - 1, None), None)
        return self._rank(last_kept) if last_kept else None

    def _pruned_below(self, pool: Pool, lowest: float) -> Rank | None:
        """The cutoff, once it may be out of reach of any candidate."""
        ranked, last = pool.ranked_active, self._kept - 1
        reached = len(ranked) > last and ranked[last].expected_score >= lowest
        return self._cutoff(pool) if reached or self._enough(pool.ended) else None

    def _may_be_pruned(self, candidate: Candidate) -> bool:
        return candidate.active  # ended ones are completions

    def _enough(self, ended: int = 0) -> bool:
        """Whether no beam is kept once `ended` more chains have ended."""
        complete = len(self._completed) + ended >= self.config.n
        return complete and not self.config.sort_completed

    def _keep(self, ranked: list[Node]) -> list[Node]:
        return list(islice(self._eligible(ranked), self._kept))

    def _eligible(self, ranked: Iterable[Node]) -> Iterator[Node]:
        """The ranked beams that may be kept: all of them, or the first of each text."""
        texts = set()
        for node in ranked:
            if self.config.filter_duplicates:
                if (text := self.tree.text(node.path)) in texts:
                    continue
                texts.add(text)
            yield node

    def _children(self, kept: list[Node]) -> list[NodePath]:
        """Paths of n new nodes, dealt out to the kept beams in turn, best first."""
        return [
            (*parent.path, child)
            for rank, parent in enumerate(kept)
            for child in range(len(range(rank, self.config.n, len(kept))))
        ]
