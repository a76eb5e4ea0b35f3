"""The base of the tree strategies: iterations that grow candidates, score them and decide.

A pool is a set of candidates that are decided together. A candidate is one new step at the end of a
chain, or with `finish="eos"` in the last iteration the rest of the chain; then it gets a score. Its
states (`CandidateState`):

    _open ──► GROWING ──► SCORING ──► READY ────► _decide(pool): its end is EXPANDED, PRUNED,
                                                  COMPLETED or SURPLUS

`_decide` is called when every candidate of the pool is READY. `_finish` ends the whole search,
whatever state the candidates of other pools are in. Pending requests are kept by node, so a late,
unknown or duplicate result matches none and changes nothing.

Two differences stand beside it: `foresight` says which candidates may be asked for next, and
`pruning` prunes candidates whose score cannot matter any more.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from typing import Generic, TypeVar

from .base import StepConfig, TreeSearch
from .protocol import Expand, Generated, Score, Scored
from .thought import MAX_SCORE, Completion, Fate, NodePath, SeedOf, aggregate
from .tree import Node, Rank

BY_RANK = attrgetter("rank")
"""Sort key of candidates that are ready."""
UNKNOWN_SCORE = 0.5
"""The score that a path is taken to have before any of its steps has been scored."""

AnyStepConfig = TypeVar("AnyStepConfig", bound=StepConfig)


class CandidateState(Enum):
    """A candidate's state; the transitions are drawn above."""

    GROWING = auto()
    """It waits for its step."""
    SCORING = auto()
    """It waits for scores only."""
    READY = auto()
    """It waits for the rest of its pool."""


@dataclass(slots=True, eq=False)
class Pool:
    """Candidates that are decided together; `key` identifies the pool within its strategy."""

    key: int
    iteration: int
    """Number of the iteration, starting at 1."""
    last: bool
    """Whether this is the last iteration."""
    whole: bool
    """Whether its candidates are generated to the end of the sequence."""
    candidates: list[Candidate] = field(default_factory=list)
    """The candidates in the order in which they were opened, less those that were pruned early."""
    unready: int = 0
    ranked: list[Candidate] = field(default_factory=list)
    """The ready candidates, in rank order."""
    ranked_active: list[Candidate] = field(default_factory=list)
    """The ready candidates that are active, in rank order."""
    ended: int = 0
    """Number of candidates that are known to be inactive."""

    @property
    def ends(self) -> list[Node]:
        """The last step of every candidate, in the order in which they were opened."""
        return [candidate.end for candidate in self.candidates]


@dataclass(slots=True, eq=False)
class Candidate:
    """A new step at the end of a chain, or the rest of it; kept or pruned as one."""

    pool: Pool
    start: int
    """Depth of its first step."""
    end: Node
    """Its last step."""
    upper_bound: float
    """The most that its path can score."""
    prior: float
    """Expected score of its path while it is unscored: the score of the path above."""
    state: CandidateState = CandidateState.GROWING
    active: bool = True
    """Whether its chain can be expanded; known once it is generated."""
    unscored: int = 0
    """Number of scores that have been asked for and not been told."""
    rank: Rank | None = None
    """Its rank, once it is ready."""

    @property
    def best_rank(self) -> Rank:
        """Its rank, or the best that it can reach before it is ready."""
        return self.rank or (-self.upper_bound, -MAX_SCORE, self.end.path)

    @property
    def expected_score(self) -> float:
        """The score of its path, or the prior before it is ready."""
        return -self.rank[0] if self.rank else self.prior


class StepSearch(TreeSearch[AnyStepConfig], Generic[AnyStepConfig]):
    """Base of the tree strategies.

    A strategy opens its first pools in its constructor (`_open`) and defines `_decide`, which opens
    the next pool or ends the search (`_finish`); `_active_and_ended` and `_path_score` help it to
    choose. Optional: `_is_active` for chains that end in ways of their own. `_may_be_pruned` and
    `_advanced` are for `pruning`.
    """

    def __init__(self, config: AnyStepConfig, seed: SeedOf) -> None:
        super().__init__(config)
        self._seed, self._sampling = seed, config.sampling
        self._undecided: dict[int, Pool] = {}
        """The pools whose candidates may yet be expanded, by key."""
        self._awaiting_step: dict[NodePath, Candidate] = {}
        self._awaiting_score: dict[NodePath, Candidate] = {}

    @abstractmethod
    def _decide(self, pool: Pool) -> None:
        """Every candidate of the pool is ready: complete, prune, open the next pool, or finish."""

    def _is_active(self, pool: Pool, node: Node) -> bool:
        """Whether the chain that `node` ends can be expanded after this pool's iteration."""
        assert node.thought is not None
        return not pool.last and node.thought.goes_on

    def _may_be_pruned(self, candidate: Candidate) -> bool:
        """Whether a candidate that waits for its score may be pruned without it."""
        return False

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if isinstance(result, Generated):
            if candidate := self._awaiting_step.pop(result.node, None):
                self._grow(candidate, result)
        elif result.node in self._awaiting_score:
            self.tree.lock_score(result.node, result.score)
            self._take_score(self._awaiting_score.pop(result.node))

    def _open(
        self,
        starts: Iterable[NodePath],
        *,
        after: Pool | None = None,
        key: int | None = None,
        whole: bool = False,
    ) -> Pool:
        """Begin the iteration after that of `after` with candidates that start at new nodes.

        The pool has the key of `after` unless it is given one. With `whole` the candidates are the
        rest of their chains, as in a last iteration with `finish="eos"`.
        """
        iteration = after.iteration + 1 if after else 1
        if key is None:
            key = after.key if after else 0
        last = whole or self.config.is_last(iteration)
        whole = whole or self.config.is_whole(iteration)
        pool = Pool(key, iteration, last, whole)
        scores: dict[NodePath, tuple[float, float]] = {}
        for path in starts:
            parent = path[:-1]
            if parent not in scores:
                scores[parent] = self._upper_bound_and_prior(parent)
            node = self.tree.add(path)
            candidate = Candidate(pool, len(path), node, *scores[parent])
            pool.candidates.append(candidate)
            self._awaiting_step[path] = candidate
            self._asks.append(self._request(path, whole))
        pool.unready = len(pool.candidates)
        self._undecided[pool.key] = pool
        return pool

    def _request(self, path: NodePath, whole: bool) -> Expand:
        """The request of a candidate that starts at `path`: one step, or the rest of its chain."""
        return Expand(path, self._seed(path), self._sampling, whole)

    def _finish(self, completed: Sequence[Node]) -> None:
        """The search is over with these completions, each given as its last step."""
        for node in completed:
            node.fate = Fate.COMPLETED
        self._end(tuple(map(self._completion, sorted(completed, key=self._rank))))

    def _completion(self, node: Node) -> Completion:
        return self.tree.completion(node.path, self.config.agg_strategy)

    def _end(self, completions: tuple[Completion, ...]) -> None:
        """See TreeSearch; nothing is awaited any more."""
        super()._end(completions)
        self._undecided.clear()
        self._awaiting_step.clear()
        self._awaiting_score.clear()

    def _active_and_ended(self, pool: Pool) -> tuple[list[Node], list[Node]]:
        """The last steps of a decided pool's active and ended chains, each in rank order."""
        active = [candidate.end for candidate in pool.ranked_active]
        return active, [candidate.end for candidate in pool.ranked if not candidate.active]

    def _path_score(self, node: Node) -> float:
        return self.tree.path_score(node.path, self.config.agg_strategy)

    def _rank(self, node: Node) -> Rank:
        return self.tree.rank(node.path, self.config.agg_strategy)

    def _upper_bound_and_prior(self, parent: NodePath) -> tuple[float, float]:
        """The most that a candidate below `parent` can score, and what it is expected to score.

        The first is the path's score with one more step of the best score, the second without one,
        as it stays after a step without text: the best score may be worth less than 1.
        """
        above, how = self.tree.values(parent), self.config.agg_strategy
        prior = aggregate(above, how) if above else UNKNOWN_SCORE
        return max(prior, aggregate([*above, self.tree.max_value], how)), prior

    def _grow(self, candidate: Candidate, result: Generated) -> None:
        """Take in its step, or the rest of its chain, and ask for the score."""
        pool, path = candidate.pool, result.node
        for thought in result.thoughts:
            above = candidate.end.thought  # none before the first
            if above and not (pool.whole or above.thinking):
                break  # an engine that ran on must not lengthen or end the chain
            node = self.tree.get(path) or self.tree.add(path)
            node.thought = thought
            if node is not candidate.end:
                candidate.end.fate = Fate.EXPANDED
                candidate.end = node
            path = (*path, 0)
        candidate.active = self._is_active(pool, candidate.end)
        pool.ended += not candidate.active
        candidate.state = CandidateState.SCORING
        self._ask_scores(candidate)
        self._advanced(candidate)

    def _ask_scores(self, candidate: Candidate) -> None:
        """Ask for the score of the last step, or where the aggregation needs it of every one."""
        end = candidate.end.path
        every_step = candidate.pool.whole and self.config.agg_strategy != "last"
        paths = self.tree.judged(end, candidate.start) if every_step else [end]
        for path in paths:
            self._awaiting_score[path] = candidate
            self._asks.append(Score(path, may_be_pruned=self._may_be_pruned(candidate)))
            candidate.unscored += 1

    def _take_score(self, candidate: Candidate) -> None:
        candidate.unscored -= 1
        if candidate.unscored:
            return
        candidate.rank = self._rank(candidate.end)
        candidate.state = CandidateState.READY
        pool = candidate.pool
        pool.unready -= 1
        insort(pool.ranked, candidate, key=BY_RANK)
        if candidate.active:
            insort(pool.ranked_active, candidate, key=BY_RANK)
        self._advanced(candidate)

    def _advanced(self, candidate: Candidate) -> None:
        """A candidate has got its step or its score: decide once the whole pool is ready."""
        pool = candidate.pool
        if not pool.unready:
            del self._undecided[pool.key]
            self._decide(pool)
