"""The hints of a search that works in iterations, so that idle slots can begin its next expansions.

Each candidate of a pool that is not decided yet may be kept and then expanded: it is a *parent* of
guesses. Children are shared out among parents as if no further score were to come; a child that an
engine has already answered becomes a parent of the next level. A guess is exact: the request is the
one that the search itself would send.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ahead import Guess, Hints
from .pruning import best_rank, cutoff, expected_score
from .step_search import UNKNOWN_SCORE, Candidate, Pool, StepSearch
from .thought import NodePath, Thought

Shares = Callable[[Sequence[float]], list[int]]
"""How many children the candidates of one pool with these scores, best first, would get."""


def best_get(children: int, *, places: int) -> Shares:
    """The shares where the best candidates, as many as there are places, get so many children."""
    return lambda scores: [children if place < places else 0 for place in range(len(scores))]


@dataclass(frozen=True, slots=True)
class _Parent:
    """A node that may be expanded in the iteration after `iteration` of the pool `key`."""

    node: NodePath
    chance: float
    """A rough probability that it will be."""
    score: float
    key: int
    iteration: int


class StepHints(Hints):
    """Hints from the undecided pools of a search."""

    def __init__(
        self, search: StepSearch[Any], shares: Shares, others: Collection[NodePath] = ()
    ) -> None:
        """`others` are nodes of decided pools that may be expanded; the search changes them."""
        self._search = search
        self._shares = shares
        self._others = others

    def needs(self) -> dict[NodePath, bool]:
        """The needs of the search's pruner."""
        return self._search.pruner.needs()

    def expandable(self) -> set[NodePath]:
        """Nodes that may yet be expanded: most of them await their pool's decision."""
        pools = self._search.undecided.values()
        return {each.end.path for pool in pools for each in self._rivals(pool)}.union(self._others)

    def guess(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for, best first; see Hints."""
        config, level = self._search.config, 1
        pools = self._search.undecided.values()
        parents = [parent for pool in pools for parent in self._parents(pool)]
        while parents:
            parents.sort(key=lambda parent: (-parent.chance, -parent.score, parent.node))
            answered_below: list[tuple[NodePath, _Parent]] = []
            for parent, children in self._ration(parents):
                iteration = parent.iteration + 1
                for child in range(children):
                    path = (*parent.node, child)
                    if (thoughts := answered.get(path)) is None:
                        request = self._search.request(path, whole=config.is_whole(iteration))
                        yield Guess(request, level, parent.chance)
                    elif thoughts[-1].goes_on and not config.is_last(iteration):
                        end = path + (0,) * (len(thoughts) - 1)
                        answered_below.append((end, parent))
            parents, level = self._next_parents(answered_below), level + 1

    def _rivals(self, pool: Pool) -> list[Candidate]:
        """Candidates whose steps are complete and that may be expanded, as far as is known."""
        rank = cutoff(self._search, pool)
        return [
            each
            for each in pool.candidates
            if each.end.thought and each.active and (rank is None or best_rank(each) <= rank)
        ]

    def _parents(self, pool: Pool) -> Iterator[_Parent]:
        """The pool's candidates that may be expanded, each with its chance.

        Of the m candidates that compete, k take places. One that is r-th of the s that are scored
        so far is expected to end up (m + 1) / (s + 1) * r-th: order statistics of draws from one
        distribution. Of the others, k / m take places.
        """
        competing = len(pool.candidates) - pool.inactive
        places = self._places_of(competing)
        ranks = {each.end.path: rank for rank, each in enumerate(pool.ranked_active, start=1)}
        spread = places * (len(ranks) + 1) / (competing + 1)
        for candidate in self._rivals(pool):
            path = candidate.end.path
            chance = spread / ranks[path] if path in ranks else places / competing
            score = expected_score(candidate)
            yield _Parent(path, min(1.0, chance), score, pool.key, pool.iteration)

    def _ration(self, parents: Sequence[_Parent]) -> list[tuple[_Parent, int]]:
        """The parents, which are in order, each with the children that it would get."""
        pools: defaultdict[int, list[float]] = defaultdict(list)
        for parent in parents:
            pools[parent.key].append(parent.score)
        children = {key: iter(self._shares(scores)) for key, scores in pools.items()}
        return [(parent, next(children[parent.key])) for parent in parents]

    def _next_parents(self, answered: Sequence[tuple[NodePath, _Parent]]) -> list[_Parent]:
        """The parents that answered guesses become, each given with its own parent.

        Each has n rivals, and its score is taken to be that above.
        """
        n = self._search.config.n
        places = self._places_of(n) if answered else 0
        return [
            _Parent(node, above.chance * places / n, above.score, above.key, above.iteration + 1)
            for node, above in answered
        ]

    def _places_of(self, candidates: int) -> int:
        """How many of this number of candidates would get children if their scores were equal."""
        return sum(share > 0 for share in self._shares([UNKNOWN_SCORE] * candidates))
