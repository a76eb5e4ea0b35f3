"""Pools whose candidates are pruned as soon as their score can change nothing: fewer scores.

    SCORING ──► _outranked: its end is PRUNED, without a score

A candidate is pruned without a score once as many as are kept outrank the best that it can reach.
So nothing can spare a pool the scores of its first candidates, by the best rank that each could
reach, as many as it keeps: its *contenders*. One that does not reach its best rank, or has ended,
lets the next candidate in. Where all could score the same, scores asked for in this order are all
needed; those of the others are not, if enough contenders reach their best rank.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from .candidates import Candidate, Pool, State
from .protocol import Score
from .step_search import Config, StepSearch
from .thought import Completion, Fate, NodePath, SeedOf


class PruningSearch(StepSearch[Config]):
    """Base of the tree strategies that keep a fixed number of a pool's candidates."""

    def __init__(self, config: Config, seed: SeedOf, kept: int) -> None:
        """`kept`: how many candidates of a pool are kept at most."""
        super().__init__(config, seed)
        self._kept = kept
        self._contenders: dict[int, Contenders] = {}
        """Of each undecided pool."""
        self._unwanted: list[NodePath] = []
        self._needed: list[NodePath] = []

    @abstractmethod
    def _outranked(self, pool: Pool, latest: Candidate) -> list[Candidate]:
        """Candidates in state SCORING that will be pruned whatever their score is.

        It is asked for after every step and score, that of `latest`, so it must be cheap.
        """

    @abstractmethod
    def _may_be_outranked(self, candidate: Candidate) -> bool:
        """Whether a candidate that waits for its score may be pruned without it."""

    def unwanted(self) -> list[NodePath]:
        """Nodes that were pruned after their score was asked for; each is returned once."""
        nodes, self._unwanted = self._unwanted, []
        return nodes

    def needed(self) -> list[NodePath]:
        """See Search; each node is returned once, unless it was answered or pruned before."""
        nodes, self._needed = self._needed, []
        return [node for node in nodes if node in self._awaiting_score]

    def _open(
        self,
        starts: Iterable[NodePath],
        *,
        after: Pool | None = None,
        key: int | None = None,
        whole: bool = False,
    ) -> Pool:
        pool = super()._open(starts, after=after, key=key, whole=whole)
        self._contenders[pool.key] = Contenders(pool.candidates, self._kept)
        return pool

    def _end(self, completions: tuple[Completion, ...]) -> None:
        super()._end(completions)
        self._contenders.clear()
        self._unwanted.clear()
        self._needed.clear()

    def _score(self, candidate: Candidate, node: NodePath) -> Score:
        return Score(node, need_open=self._may_be_outranked(candidate))

    def _advanced(self, candidate: Candidate) -> None:
        """Prune what is outranked before the pool is decided, and say which scores are needed."""
        pool = candidate.pool
        for outranked in self._outranked(pool, candidate):
            outranked.end.fate = Fate.PRUNED
            pool.candidates.remove(outranked)
            pool.unready -= 1
            self._withdraw_score(outranked.end.path)
        for contender in self._contenders[pool.key].after(candidate):
            if self._may_be_outranked(contender):
                self._needed += self._awaited(contender)
        if not pool.unready:
            del self._contenders[pool.key]
        super()._advanced(candidate)

    def _awaited(self, candidate: Candidate) -> Iterator[NodePath]:
        """The nodes whose scores a candidate waits for."""
        end = candidate.end.path
        for depth in range(candidate.start, len(end) + 1):
            if self._awaiting_score.get(end[:depth]) is candidate:
                yield end[:depth]

    def _withdraw_score(self, node: NodePath) -> None:
        """The score of `node` is not needed any more."""
        del self._awaiting_score[node]
        asks = [work for work in self._asks if work.node != node]
        if len(asks) == len(self._asks):
            self._unwanted.append(node)  # it has been handed out
        self._asks = asks


class Contenders:
    """The contenders of one pool."""

    def __init__(self, candidates: Sequence[Candidate], kept: int) -> None:
        """`candidates` have not grown yet; `kept`: how many of them the pool keeps at most."""
        self._order = sorted(candidates, key=best_first)
        self._places = {candidate: place for place, candidate in enumerate(self._order)}
        self._count = min(kept, len(self._order))
        self._out: set[Candidate] = set()

    def after(self, latest: Candidate) -> list[Candidate]:
        """After a step or score of `latest`: contenders that have come to wait for their scores."""
        waiting: list[Candidate] = []
        entered = [latest] if self._places[latest] < self._count else []
        while entered:
            candidate = entered.pop()
            if candidate.state is State.SCORING:
                waiting.append(candidate)
            if _is_out(candidate) and candidate not in self._out:
                self._out.add(candidate)
                if self._count < len(self._order):
                    entered.append(self._order[self._count])
                    self._count += 1
        return waiting


def best_first(candidate: Candidate) -> tuple[float, NodePath]:
    """Sort key by which the candidates of a pool could rank at best."""
    return -candidate.upper_bound, candidate.end.path


def _is_out(candidate: Candidate) -> bool:
    """Whether it does not outrank all candidates after it: it has ended, or has a lower score."""
    missed = candidate.state is State.READY and candidate.expected_score < candidate.upper_bound
    return missed or not candidate.active
