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

Differences from search-and-learn are listed in docs/strategies.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Self

from pydantic import Field, model_validator

from .config import check_width
from .early_stop import AnswerOf
from .step_search import UNREACHABLE, Candidate, Pool, Rank, VotingConfig, VotingSearch
from .tree import Node
from .types import Fate, NodePath


class BeamSearchConfig(VotingConfig):
    """Parameters of beam search. `n` is also the number of candidates per iteration."""

    beam_width: int = Field(4, ge=1)
    """Children of a kept beam; n/beam_width beams are kept."""
    filter_duplicates: bool = False
    """Keep only one of the active beams that have the same text."""
    sort_completed: bool = False
    """Search on until nothing is active and return the n best; else the first n complete."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_width(self.n, self.beam_width)
        if self.sort_completed and self.early_stop:
            raise ValueError(
                "sort_completed and early_stop cannot both be on: the first goes on searching "
                "for better completions, the second stops before all are there"
            )
        return self


class BeamSearch(VotingSearch[BeamSearchConfig]):
    """The state machine; see `types.Search` for the contract."""

    def __init__(
        self,
        config: BeamSearchConfig,
        seed: Callable[[NodePath], int],
        answer_of: AnswerOf | None = None,
    ) -> None:
        """See VotingSearch."""
        super().__init__(config, seed, answer_of)
        self._completed: list[Node] = []
        self._open((child,) for child in range(config.n))

    def _decide(self, pool: Pool) -> None:
        active, ended = self._sorted_out(pool)
        self._completed += ended
        self._count(ended)
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
        return [
            self.config.beam_width if place < self._width else 0 for place in range(len(scores))
        ]

    def _bar(self, pool: Pool) -> Rank | None:
        """The rank of the last beam that will be kept, if no better ones come."""
        if self._enough(pool.ended):
            return UNREACHABLE
        if len(pool.ranked) < self._width:
            return None
        active = (node for _, node in pool.ranked if self._active(pool, node))
        last_kept = next(islice(self._candidates(active), self._width - 1, None), None)
        return self._rank(last_kept) if last_kept else None

    def _needless(self, pool: Pool) -> list[Candidate]:
        bar = self._bar(pool) if self._may_be_needless(pool) else None
        if bar is None:
            return []
        return [
            candidate
            for candidate in pool.candidates
            if candidate.unscored
            and self._active(pool, candidate.end)
            and self._best_rank(candidate) > bar
        ]

    def _may_be_needless(self, pool: Pool) -> bool:
        """Whether anything can be: cheap, as it is asked after every step and score."""
        if self._enough(pool.ended):
            return True
        place = self._width - 1
        return len(pool.ranked) > place and -pool.ranked[place][0][0] >= pool.lowest_bound

    @property
    def _width(self) -> int:
        """Beams that are kept."""
        return self.config.n // self.config.beam_width

    def _enough(self, ended: int = 0) -> bool:
        """Whether no beam is kept, when so many more chains have ended."""
        complete = len(self._completed) + ended >= self.config.n
        return (complete and not self.config.sort_completed) or self._decided

    def _keep(self, ranked: list[Node]) -> list[Node]:
        return list(islice(self._candidates(ranked), self._width))

    def _candidates(self, ranked: Iterable[Node]) -> Iterator[Node]:
        """Those of the ranked beams that may be kept: all, or the first of each text."""
        texts = set()
        for node in ranked:
            if self.config.filter_duplicates:
                if (text := self.tree.text(node.path)) in texts:
                    continue
                texts.add(text)
            yield node

    def _children(self, kept: list[Node]) -> list[NodePath]:
        """As many new nodes as n, shared out over the kept ones in turn, best first."""
        return [
            (*parent.path, child)
            for rank, parent in enumerate(kept)
            for child in range(len(range(rank, self.config.n, len(kept))))
        ]
