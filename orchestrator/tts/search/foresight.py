"""Foresight: predict the next expansions of a tree search, so that idle slots can begin them.

The candidates of the pools that are not decided yet are *prospects*: each may be kept and then
expanded. Children are shared out among prospects as if no further score were to come (`_shares`); a
child that an engine has already answered becomes a prospect of the next level. A guess is exact:
the request is the one that the search itself would send.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .protocol import Guess
from .step_search import UNKNOWN_SCORE, AnyStepConfig, Candidate, CandidateState, Pool, StepSearch
from .thought import NodePath, Thought
from .tree import Rank


@dataclass(frozen=True, slots=True)
class Prospect:
    """A node that may be expanded in the iteration after `iteration` of the pool `key`."""

    node: NodePath
    chance: float
    """A rough probability that it will be."""
    score: float
    key: int
    iteration: int


class ForesightSearch(StepSearch[AnyStepConfig]):
    """A base of the tree strategies, which can say what they may ask for next."""

    @abstractmethod
    def _shares(self, scores: Sequence[float]) -> list[int]:
        """How many children the candidates of one pool with these scores, best first, would get."""

    def _cutoff(self, pool: Pool) -> Rank | None:
        """The rank that a candidate must reach to be expanded, as far as it is known."""
        return None

    def expandable(self) -> set[NodePath]:
        """Nodes that await their pool's decision and may yet be expanded."""
        return {each.end.path for pool in self._undecided.values() for each in self._rivals(pool)}

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for below the prospects, best first; see Search."""
        level = 1
        ahead = [each for pool in self._undecided.values() for each in self._prospects(pool)]
        while ahead:
            ahead.sort(key=lambda p: (-p.chance, -p.score, p.node))
            answered_above: list[tuple[NodePath, Prospect]] = []
            for prospect, children in self._ration(ahead):
                iteration = prospect.iteration + 1
                for child in range(children):
                    path = (*prospect.node, child)
                    if (thoughts := answered.get(path)) is None:
                        request = self._request(path, self.config.is_whole(iteration))
                        yield Guess(request, level, prospect.chance)
                    elif thoughts[-1].goes_on and not self.config.is_last(iteration):
                        end = path + (0,) * (len(thoughts) - 1)
                        answered_above.append((end, prospect))
            ahead, level = self._below(answered_above), level + 1

    def _rivals(self, pool: Pool) -> list[Candidate]:
        """Candidates whose steps are complete and that may be expanded, as far as is known."""
        cutoff = self._cutoff(pool)
        return [
            each
            for each in pool.candidates
            if each.state is not CandidateState.GROWING
            and each.active
            and (cutoff is None or each.best_rank <= cutoff)
        ]

    def _prospects(self, pool: Pool) -> Iterator[Prospect]:
        """The pool's candidates that may be expanded, each with its chance.

        Of the m candidates that compete, k would be kept. One that is r-th of the s that are scored
        so far is expected to end up (m + 1) / (s + 1) * r-th: order statistics of draws from one
        distribution. Of the others, k / m will be kept.
        """
        competing = len(pool.candidates) - pool.ended
        kept = self._parents(competing)
        scored = [candidate.end.path for candidate in pool.ranked_active]
        places = {path: place for place, path in enumerate(scored, start=1)}
        spread = kept * (len(scored) + 1) / (competing + 1)
        for candidate in self._rivals(pool):
            path = candidate.end.path
            chance = spread / places[path] if path in places else kept / competing
            score = candidate.expected_score
            yield Prospect(path, min(1.0, chance), score, pool.key, pool.iteration)

    def _ration(self, prospects: Sequence[Prospect]) -> list[tuple[Prospect, int]]:
        """The prospects, which are in order, each with the children that it would get."""
        pools: defaultdict[int, list[float]] = defaultdict(list)
        for prospect in prospects:
            pools[prospect.key].append(prospect.score)
        children = {key: iter(self._shares(scores)) for key, scores in pools.items()}
        return [(prospect, next(children[prospect.key])) for prospect in prospects]

    def _below(self, answered: Sequence[tuple[NodePath, Prospect]]) -> list[Prospect]:
        """The prospects that foreseen candidates become, given by their nodes and what is above.

        Each has n rivals, and its score is taken to be that above.
        """
        kept = self._parents(self.config.n) if answered else 0
        return [
            Prospect(
                node,
                above.chance * kept / self.config.n,
                above.score,
                above.key,
                above.iteration + 1,
            )
            for node, above in answered
        ]

    def _parents(self, candidates: int) -> int:
        """How many of this number of candidates would get children if their scores were equal."""
        return sum(share > 0 for share in self._shares([UNKNOWN_SCORE] * candidates))
