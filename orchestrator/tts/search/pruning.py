"""Pools whose candidates are pruned as soon as their score can change nothing: fewer scores.

    SCORING ──► StepSearch.withdraw: its end is PRUNED, without a score

A candidate is pruned without a score once as many as go on outrank the best that it can reach. So
nothing can spare a pool the scores of its first candidates, by the best rank that each could reach,
as many as go on: its *contenders*. One that does not reach its best rank, or has ended, lets the
next candidate in. Where all could score the same, scores asked for in this order are all needed;
those of the others are not, if enough contenders reach their best rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .step_search import Candidate, Pool, Pruner, StepSearch
from .thought import MAX_SCORE, NodePath
from .tree import Rank

UNREACHABLE: Rank = (float("-inf"), float("-inf"), ())
"""A rank that is better than that of any candidate."""


def best_rank(candidate: Candidate) -> Rank:
    """The rank of a candidate, or the best that it can reach before it is ready."""
    return candidate.rank or (-candidate.upper_bound, -MAX_SCORE, candidate.end.path)


def expected_score(candidate: Candidate) -> float:
    """The score of a candidate's path, or its prior before it is ready."""
    return -candidate.rank[0] if candidate.rank else candidate.prior


def cutoff(search: StepSearch[Any], pool: Pool) -> Rank | None:
    """The rank that a candidate must reach to go on; None while nothing keeps it from that."""
    places = search.places(pool)
    if places == 0:
        return UNREACHABLE
    winners = search.winners(pool)
    return winners[-1].rank if len(winners) == places else None


class EarlyPruner(Pruner):
    """Prunes for a search whose rule is `places` and `winners`."""

    def __init__(
        self, search: StepSearch[Any], is_settled: Callable[[Pool], bool] | None = None
    ) -> None:
        """`is_settled`: whether a pool goes on; then those that have ended are pruned as well.

        By default chains that have ended take no places and are never pruned: they come out.
        """
        self._search = search
        self._is_settled = is_settled
        self._contests: dict[int, Contest] = {}
        """The contests of the undecided pools, by key."""
        self._needs: dict[NodePath, Candidate | None] = {}
        """The nodes whose scores are needed, with their candidates, or no more: None."""

    def may_prune(self, candidate: Candidate) -> bool:
        """Whether a candidate may be pruned while it waits for its score."""
        return candidate.active or self._is_settled is not None

    def advance(self, candidate: Candidate) -> None:
        """Prune what is outranked before the pool is decided, and note which scores are needed."""
        pool = candidate.pool
        contest = self._contests.get(pool.key)
        if contest is None:
            places = self._search.places(pool) or 0
            contest = self._contests[pool.key] = Contest(pool, places)
        if rank := self._cutoff(pool, contest.lowest):
            for outranked in filter(self.may_prune, contest.outranked(rank, candidate)):
                if self._search.withdraw(outranked):
                    self._needs[outranked.end.path] = None
        for contender in filter(self.may_prune, contest.contenders(candidate)):
            self._needs.update(dict.fromkeys(contender.awaited, contender))
        if pool.ready:
            del self._contests[pool.key]

    def needs(self) -> dict[NodePath, bool]:
        """See Hints; nodes that were answered meanwhile are left out."""
        needs, self._needs = self._needs, {}
        if self._search.done:
            return {}
        return {
            node: candidate is not None
            for node, candidate in needs.items()
            if candidate is None or node in candidate.awaited
        }

    def _cutoff(self, pool: Pool, lowest: float) -> Rank | None:
        """The cutoff, once a candidate may miss it: the least upper bound of any is `lowest`.

        Asked for after every step and score, so it is cheap until then.
        """
        if places := self._search.places(pool):
            last = pool.ranked[places - 1 : places]
            if not last or expected_score(last[0]) < lowest:
                return None  # no winner ranks above it
        if self._is_settled is None or self._is_settled(pool):
            return cutoff(self._search, pool)
        return None


class Contest:
    """The candidates of one pool by the best rank that each could reach when it was opened.

    Contenders come in from the front; from the back those go that have fallen out of reach. So each
    candidate is looked at a few times, however many events the pool sees.
    """

    def __init__(self, pool: Pool, places: int) -> None:
        self._order = sorted(pool.candidates, key=lambda each: (-each.upper_bound, each.end.path))
        self._places = {candidate: place for place, candidate in enumerate(self._order)}
        self._count = min(places, len(self._order))
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
        while self._within_reach and best_rank(self._order[self._within_reach - 1]) > rank:
            self._within_reach -= 1
            candidate = self._order[self._within_reach]
            if candidate is not latest:
                passed.append(candidate)
        return [each for each in reversed(passed) if each.awaited and best_rank(each) > rank]

    def contenders(self, latest: Candidate) -> list[Candidate]:
        """Contenders that have come to wait for their scores after a step or score of `latest`."""
        waiting: list[Candidate] = []
        entered = [latest] if self._places[latest] < self._count else []
        while entered:
            candidate = entered.pop()
            if candidate.awaited:
                waiting.append(candidate)
            if _is_out(candidate) and candidate not in self._out:
                self._out.add(candidate)
                if self._count < len(self._order):
                    entered.append(self._order[self._count])
                    self._count += 1
        return waiting


def _is_out(candidate: Candidate) -> bool:
    """Whether it does not outrank all candidates after it: it has ended, or has a lower score."""
    missed = candidate.rank is not None and expected_score(candidate) < candidate.upper_bound
    return missed or not candidate.active
