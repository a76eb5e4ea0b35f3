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

from collections.abc import Sequence

from .protocol import Search, WidthConfig
from .seeds import SeedOf
from .step_hints import EarlyPruner, StepHints, best_get
from .step_search import Candidate, Pool, StepSearch
from .thought import Fate, NodePath
from .tree import Node
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


class BeamSearch(StepSearch[BeamSearchConfig]):
    """Keeps the n/beam_width best of each iteration's n candidates."""

    def __init__(self, config: BeamSearchConfig, seed: SeedOf) -> None:
        super().__init__(config, seed)
        self._kept = config.n // config.beam_width
        self._completed: list[Node] = []
        self.pruner = EarlyPruner(self)
        self.hints = StepHints(self, best_get(config.beam_width, places=self._kept))
        self._open((child,) for child in range(config.n))

    def places(self, pool: Pool) -> int:
        """All n/beam_width places, or none once enough chains have ended."""
        complete = len(self._completed) + pool.inactive >= self.config.n
        return 0 if complete and not self.config.sort_completed else self._kept

    def winners(self, pool: Pool) -> Sequence[Candidate]:
        """The rule: the best active beams go on."""
        beams = pool.ranked_active
        if self.config.filter_duplicates:
            beams = self._distinct(beams)
        return beams[: self.places(pool)]

    def _decide(self, pool: Pool) -> None:
        beams = [candidate.end for candidate in self.winners(pool)]
        for candidate in pool.ranked:
            if candidate.active:
                candidate.end.fate = Fate.PRUNED
            else:
                self._completed.append(candidate.end)
        for node in beams:
            node.fate = Fate.EXPANDED
        if beams:
            self._open(self._children(beams), after=pool)
            return
        if self.config.sort_completed:
            self._completed.sort(key=self._rank)
        for node in self._completed[self.config.n :]:
            node.fate = Fate.SURPLUS
        self._finish(self._completed[: self.config.n])

    def _distinct(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """The best candidate of each text, as many as may go on."""
        first: dict[str, Candidate] = {}
        for candidate in ranked:
            first.setdefault(self.tree.text(candidate.end.path), candidate)
            if len(first) == self._kept:
                break
        return list(first.values())

    def _children(self, beams: list[Node]) -> list[NodePath]:
        """Paths of n new nodes, dealt out to the beams in turn, best first."""
        return [
            (*parent.path, child)
            for rank, parent in enumerate(beams)
            for child in range(len(range(rank, self.config.n, len(beams))))
        ]
