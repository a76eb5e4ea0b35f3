"""What may stand beside the loop of a search in iterations: pruning without a score, and guesses.

    SCORING ──► StepSearch.withdraw: its end is PRUNED, without a score

A candidate is pruned without a score once as many as go on outrank the best that it can reach. So
nothing can spare a pool the scores of its first candidates, by the best rank that each could reach,
as many as go on: its *contenders*. One that does not reach its best rank, or has ended, lets the
next candidate in. Where all could score the same, scores asked for in this order are all needed;
those of the others are not, if enough contenders reach their best rank.

Idle slots of the generator can begin a search's next expansions: each candidate of a pool that is
not decided yet may be kept and then expanded, so it is a *parent* of guesses. Children are shared
out among parents as if no further score were to come; a child that an engine has already answered
becomes a parent of the next level. A guess is exact: the request is the one that the search itself
would send.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ahead import Guess, Hints
from .step_search import UNKNOWN_SCORE, Candidate, Pool, Pruner, StepSearch
from .thought import MAX_SCORE, NodePath, Thought
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
