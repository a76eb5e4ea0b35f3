"""Pools whose candidates are pruned as soon as their score can change nothing: fewer scores.

    SCORING ──► _withdraw: its end is PRUNED, without a score

A candidate is pruned without a score once as many as are kept outrank the best that it can reach.
So nothing can spare a pool the scores of its first candidates, by the best rank that each could
reach, as many as it keeps: its *contenders*. One that does not reach its best rank, or has ended,
lets the next candidate in. Where all could score the same, scores asked for in this order are all
needed; those of the others are not, if enough contenders reach their best rank.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from .foresight import ForesightSearch
from .step_search import AnyStepConfig, Candidate, CandidateState, Pool
from .thought import Completion, Fate, NodePath, SeedOf
from .tree import Rank


class PruningSearch(ForesightSearch[AnyStepConfig]):
    """Base of the tree strategies that keep a fixed number of a pool's candidates."""

    def __init__(self, config: AnyStepConfig, seed: SeedOf, kept: int) -> None:
        """`kept`: how many candidates of a pool are kept at most."""
        super().__init__(config, seed)
        self._kept = kept
        self._contests: dict[int, Contest] = {}
        """Of each undecided pool."""
        self._needs: dict[NodePath, bool] = {}

    @abstractmethod
    def _pruned_below(self, pool: Pool, lowest: float) -> Rank | None:
        """The rank that candidates must be able to reach: others are pruned whatever they score.

        None while that is not known. `lowest` is the least that any of them could score at best. It
        is asked for after every step and score, so it must be cheap.
        """

    def needs(self) -> dict[NodePath, bool]:
        """See Search; nodes that were answered meanwhile are left out."""
        if not self._needs:
            return {}
        needs, self._needs = self._needs, {}
        return {n: need for n, need in needs.items() if not need or n in self._awaiting_score}

    def _end(self, completions: tuple[Completion, ...]) -> None:
        super()._end(completions)
        self._contests.clear()
        self._needs.clear()

    def _advanced(self, candidate: Candidate) -> None:
        """Prune what is outranked before the pool is decided, and say which scores are needed."""
        pool = candidate.pool
        contest = self._contests.get(pool.key)
        if contest is None:
            contest = self._contests[pool.key] = Contest(pool, self._kept)
        if rank := self._pruned_below(pool, contest.lowest):
            for outranked in contest.outranked(rank, candidate):
                if self._may_be_pruned(outranked):
                    self._withdraw(outranked)
        for contender in contest.contenders(candidate):
            if self._may_be_pruned(contender):
                self._needs.update(dict.fromkeys(self._awaited(contender), True))
        if not pool.unready:
            del self._contests[pool.key]
        super()._advanced(candidate)

    def _awaited(self, candidate: Candidate) -> Iterator[NodePath]:
        """The nodes whose scores a candidate waits for."""
        end = candidate.end.path
        for depth in range(candidate.start, len(end) + 1):
            if self._awaiting_score.get(end[:depth]) is candidate:
                yield end[:depth]

    def _withdraw(self, candidate: Candidate) -> None:
        """Prune a candidate: its score is not needed any more."""
        node = candidate.end.path
        candidate.end.fate = Fate.PRUNED
        candidate.pool.candidates.remove(candidate)
        candidate.pool.unready -= 1
        del self._awaiting_score[node]
        asks = [work for work in self._asks if work.node != node]
        if len(asks) == len(self._asks):
            self._needs[node] = False  # it has been handed out
        self._asks = asks


class Contest:
    """The candidates of one pool by the best rank that each could reach when it was opened.

    Contenders come in from the front; from the back those go that have fallen out of reach. So each
    candidate is looked at a few times, however many events the pool sees.
    """

    def __init__(self, pool: Pool, kept: int) -> None:
        """`kept`: how many candidates the pool keeps at most."""
        self._order = sorted(pool.candidates, key=lambda each: (-each.upper_bound, each.end.path))
        self._places = {candidate: place for place, candidate in enumerate(self._order)}
        self._count = min(kept, len(self._order))
        """Contenders so far."""
        self._out: set[Candidate] = set()
        """Contenders that have let another one in."""
        self._within_reach = len(self._order)
        """Candidates not yet ruled out."""
        self.lowest = self._order[-1].upper_bound if self._order else 0.0
        """The least that any candidate could score at best."""

    def outranked(self, rank: Rank, latest: Candidate) -> list[Candidate]:
        """Candidates in state SCORING that cannot reach this rank; `latest` got a step or a score.

        The rank only gets better, so each candidate is looked at twice at most: when the rank
        passes it, and when its own steps are complete.
        """
        passed = [latest]
        while self._within_reach and self._order[self._within_reach - 1].best_rank > rank:
            self._within_reach -= 1
            candidate = self._order[self._within_reach]
            if candidate is not latest:
                passed.append(candidate)
        return [
            each
            for each in reversed(passed)
            if each.state is CandidateState.SCORING and each.best_rank > rank
        ]

    def contenders(self, latest: Candidate) -> list[Candidate]:
        """Those that have come to wait for their scores after a step or score of `latest`."""
        waiting: list[Candidate] = []
        entered = [latest] if self._places[latest] < self._count else []
        while entered:
            candidate = entered.pop()
            if candidate.state is CandidateState.SCORING:
                waiting.append(candidate)
            if _is_out(candidate) and candidate not in self._out:
                self._out.add(candidate)
                if self._count < len(self._order):
                    entered.append(self._order[self._count])
                    self._count += 1
        return waiting


def _is_out(candidate: Candidate) -> bool:
    """Whether it does not outrank all candidates after it: it has ended, or has a lower score."""
    missed = (
        candidate.state is CandidateState.READY and candidate.expected_score < candidate.upper_bound
    )
    return missed or not candidate.active
