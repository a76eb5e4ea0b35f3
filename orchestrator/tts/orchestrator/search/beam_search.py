"""Beam search over steps, after Hugging Face search-and-learn.

n beams in all. Each iteration expands the kept beams into n new thoughts, scores every one, moves
the complete chains out and keeps the best n/beam_width of the others. Ends when n chains are
complete, or nothing is left to expand.

    iteration 1      iteration 2             n=4, beam_width=2: keep 2, expand each twice
    root ─┬─ 0  ✗
          ├─ 1 ──┬─ 1.0 ✗
          │      └─ 1.1 ─ ...
          ├─ 2 ──┬─ 2.0 ─ ...
          │      └─ 2.1 ✗
          └─ 3  ✗

Differences from search-and-learn are listed in docs/strategies.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pydantic import Field, model_validator

from .config import SearchConfig
from .tree import Node, Tree
from .types import (
    Completion,
    Expand,
    Fate,
    Generated,
    NodePath,
    Score,
    Scored,
    SearchResult,
    Stop,
    Work,
)


class BeamSearchConfig(SearchConfig):
    """Parameters of beam search. `n` is also the number of thoughts per iteration."""

    beam_width: int = Field(4, ge=1)
    """Children of a kept beam; n/beam_width beams are kept."""
    num_iterations: int = Field(40, ge=1)
    """Steps of a chain at most; at this depth what the chain has is its answer."""
    filter_duplicates: bool = False
    """Keep only one of the active beams that have the same text."""
    sort_completed: bool = False
    """Search on until nothing is active and return the n best; else the first n complete."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.n % self.beam_width:
            raise ValueError(
                f"n is {self.n}, which is not a multiple of beam_width ({self.beam_width})"
            )
        return self


class BeamSearch:
    """The state machine; see `types.Search` for the contract."""

    def __init__(self, config: BeamSearchConfig, seed: Callable[[NodePath], int]) -> None:
        """`seed` maps a node to the seed of the sample that becomes it."""
        self.config = config
        self.tree = Tree()
        self._seed = seed
        self._asks: list[Work] = []
        self._frontier: list[Node] = []
        self._unscored = 0
        self._completed: list[Node] = []
        self._result: SearchResult | None = None
        self._expand([()])

    @property
    def done(self) -> bool:
        """True once the n completions are settled."""
        return self._result is not None

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        node = self.tree.get(result.node)
        if node is None:
            return
        if isinstance(result, Generated):
            if node.thought is None:
                (node.thought,) = result.thoughts
                self._asks.append(Score(node.path))
        elif self.tree.lock_score(node.path, result.score):
            self._unscored -= 1
            if not self._unscored:
                self._decide()

    def result(self) -> SearchResult:
        """The n completions, best first; raises RuntimeError before `done`."""
        if self._result is None:
            raise RuntimeError("the search is not done")
        return self._result

    def _expand(self, parents: list[NodePath]) -> None:
        """Ask for n thoughts shared out over the parents, which are in rank order."""
        self._frontier = []
        for rank, parent in enumerate(parents):
            # as search-and-learn repeats the kept beams until there are n
            children = len(range(rank, self.config.n, len(parents)))
            for child in range(children):
                path = (*parent, child)
                self._frontier.append(self.tree.add(path))
                self._asks.append(Expand(path, self._seed(path), self.config.sampling))
        self._unscored = len(self._frontier)

    def _decide(self) -> None:
        """Every thought of this iteration is scored: complete, prune, expand."""
        ranked = sorted(self._frontier, key=self._rank)
        active = [node for node in ranked if self._goes_on(node)]
        self._completed += [node for node in ranked if not self._goes_on(node)]
        enough = len(self._completed) >= self.config.n and not self.config.sort_completed
        if enough or not active:
            for node in active:
                node.fate = Fate.PRUNED
            self._finish()
            return
        kept = self._keep(active)
        for node in active:
            node.fate = Fate.EXPANDED if node.path in kept else Fate.PRUNED
        self._expand(kept)

    def _keep(self, ranked: list[Node]) -> list[NodePath]:
        if self.config.filter_duplicates:
            first_of_text: dict[str, Node] = {}
            for node in ranked:
                first_of_text.setdefault(self.tree.text(node.path), node)
            ranked = list(first_of_text.values())
        return [node.path for node in ranked[: self.config.n // self.config.beam_width]]

    def _finish(self) -> None:
        if self.config.sort_completed:
            self._completed.sort(key=self._rank)
        chosen = self._completed[: self.config.n]
        for node in self._completed[self.config.n :]:
            node.fate = Fate.SURPLUS
        for node in chosen:
            node.fate = Fate.COMPLETED
        self._result = SearchResult(
            tuple(
                Completion(node.path, self.tree.text(node.path), -self._rank(node)[0])
                for node in sorted(chosen, key=self._rank)
            )
        )

    def _rank(self, node: Node) -> tuple[float, NodePath]:
        """Sort key: best score first, ties by path."""
        return -self.tree.path_score(node.path, self.config.agg_strategy), node.path

    def _goes_on(self, node: Node) -> bool:
        """Whether the chain can be expanded: it stopped at a delimiter and may grow deeper.

        A step without text means that the model has nothing more to say; search-and-learn
        completes such a chain too.
        """
        thought = node.thought
        assert thought is not None
        return (
            thought.stop is Stop.STEP
            and bool(thought.text.strip())
            and len(node.path) < self.config.num_iterations
        )
