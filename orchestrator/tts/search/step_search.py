"""What the tree strategies share: iterations that grow candidates, score them and decide.

A pool is a set of candidates that are decided together. A candidate is one or more new steps below
a node: `granularity` steps, or with `finish="eos"` in the last iteration the rest of the chain;
then perhaps look-ahead steps; then a score. When every candidate of a pool has its score, the
strategy's `_decide` says what becomes of them. What is awaited is kept by node, so a result that
is late, unknown or a duplicate finds nothing and changes nothing.

Before a pool is decided, some of it may be known: a candidate that too many scored ones outrank,
whatever its own score will be, is pruned without one, and nothing is foreseen below it. Strategies
say what is known by `_bar` and `_needless`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from pydantic import Field

from .config import SearchConfig
from .early_stop import AnswerOf, EarlyStop
from .tree import Node, Tree
from .types import (
    Completion,
    Expand,
    Fate,
    Generated,
    Guess,
    NodePath,
    Sampling,
    Score,
    Scored,
    SearchResult,
    Stop,
    Thought,
    Work,
    aggregate,
)

Rank = tuple[float, NodePath]
"""Sort key of candidates: best score first, ties by path."""

UNREACHABLE: Rank = (float("-inf"), ())
"""A bar that no candidate reaches."""

UNKNOWN_SCORE = 0.5
"""Stands for the score of a path of which no step has been scored yet."""


class StepConfig(SearchConfig):
    """Parameters that the tree strategies share."""

    num_iterations: int = Field(40, ge=1)
    """Iterations at most; a chain that has not ended by then ends there."""
    finish: Literal["depth", "eos"] = "depth"
    """Whether the last iteration is like any other, or generates to the end of the sequence."""
    granularity: int = Field(1, ge=1)
    """Steps of a candidate; only the last is scored. Changes results."""
    lookahead: int = Field(0, ge=0)
    """Greedy steps generated after a candidate; the last of them is scored in its place."""


@dataclass(slots=True, eq=False)
class Pool:
    """Candidates that are decided together; `key` tells a strategy's pools apart."""

    key: int
    iteration: int
    """Counted from 1."""
    candidates: list[Candidate] = field(default_factory=list)
    unready: int = 0
    ranked: list[tuple[Rank, Node]] = field(default_factory=list)
    """The scored candidates' last steps, in rank order."""
    ended: int = 0
    """Candidates whose chain is known to end with them."""
    lowest_bound: float = 0.0
    """The least that any candidate's path can score at most."""
    ungrown: Counter[NodePath] = field(default_factory=Counter)
    """Candidates of each group whose score has not been asked for."""

    @property
    def ends(self) -> list[Node]:
        """The last step of every candidate, in the order in which they were opened."""
        return [candidate.end for candidate in self.candidates]


@dataclass(slots=True, eq=False)
class Candidate:
    """A new part of a chain, and what it still waits for."""

    pool: Pool
    start: int
    """Depth of its first step."""
    end: Node
    """Its last step so far."""
    tip: Node
    """The same, or the last look-ahead step after it."""
    bound: float
    """What its path can score at most."""
    unscored: int = 0
    """Scores that it waits for, once it waits for nothing else."""
    grown: bool = False
    """Whether `end` is its last step."""
    ready: bool = False
    """Whether it has its score."""

    @property
    def group(self) -> NodePath:
        """The node below which it grows; its siblings are the other candidates there."""
        return self.end.path[: self.start - 1]


@dataclass(frozen=True, slots=True)
class Prospect:
    """A node that may be expanded in the iteration after `iteration` of the pool `key`."""

    node: NodePath
    chance: float
    """A rough probability that it will be."""
    score: float
    key: int
    iteration: int


Config = TypeVar("Config", bound=StepConfig)


class StepSearch(ABC, Generic[Config]):
    """Base of the tree strategies; see `types.Search` for the contract."""

    def __init__(self, config: Config, seed: Callable[[NodePath], int]) -> None:
        """`seed` maps a node to the seed of the sample that becomes it."""
        self.config = config
        self.tree = Tree()
        self._seed = seed
        self._sampling = config.sampling
        self._greedy = Sampling(0.0, 1.0, config.max_tokens)
        self._asks: list[Work] = []
        self._unwanted: list[NodePath] = []
        self._undecided: dict[int, Pool] = {}
        self._growing: dict[NodePath, Candidate] = {}
        self._scoring: dict[NodePath, Candidate] = {}
        self._result: SearchResult | None = None

    @property
    def done(self) -> bool:
        """True once the completions are settled."""
        return self._result is not None

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if isinstance(result, Generated):
            if candidate := self._growing.pop(result.node, None):
                self._grow(candidate, result)
        elif result.node in self._scoring and self.tree.lock_score(result.node, result.score):
            candidate = self._scoring.pop(result.node)
            candidate.unscored -= 1
            if not candidate.unscored:
                self._ready(candidate)

    def unwanted(self) -> list[NodePath]:
        """See types.Search."""
        nodes, self._unwanted = self._unwanted, []
        return nodes

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See types.Search."""
        level = 1
        prospects = [p for pool in self._undecided.values() for p in self._prospects(pool)]
        while prospects:
            prospects.sort(key=lambda p: (-p.chance, -p.score, p.node))
            deeper: list[Prospect] = []
            for prospect, children in self._rationed(prospects):
                for child in range(children):
                    path = (*prospect.node, child)
                    following = self._first_unanswered(path, prospect, answered)
                    if isinstance(following, Expand):
                        yield Guess(following, level, prospect.chance)
                    elif following:
                        deeper.append(following)
            prospects, level = deeper, level + 1

    def expandable(self) -> set[NodePath]:
        """See types.Search."""
        return {p.node for pool in self._undecided.values() for p in self._prospects(pool)}

    def result(self) -> SearchResult:
        """The completions, best first; raises RuntimeError before `done`."""
        if self._result is None:
            raise RuntimeError("the search is not done")
        return self._result

    @abstractmethod
    def _decide(self, pool: Pool) -> None:
        """Every candidate of the pool is scored: complete, prune, open the next, or finish.

        Candidates that were needless are in the pool no more.
        """

    @abstractmethod
    def _shares(self, scores: Sequence[float]) -> list[int]:
        """Children that candidates with these scores, best first, would get of one pool."""

    def _bar(self, pool: Pool) -> Rank | None:
        """The rank that a candidate must reach to be expanded, as far as it is known."""
        return None

    def _needless(self, pool: Pool) -> list[Candidate]:
        """Candidates that wait for a score only, and will be pruned whatever it is."""
        return []

    def _open(self, starts: Iterable[NodePath], *, after: Pool | None = None, key: int = 0) -> None:
        """Begin the iteration after that of `after` with candidates that start at new nodes."""
        pool = Pool(after.key, after.iteration + 1) if after else Pool(key, 1)
        bounds: dict[NodePath, float] = {}
        for path in starts:
            node = self.tree.add(path)
            parent = path[:-1]
            if parent not in bounds:
                bounds[parent] = self._bound(parent)
            candidate = Candidate(pool, len(path), node, node, bounds[parent])
            pool.candidates.append(candidate)
            pool.ungrown[parent] += 1
            self._expand(candidate, path, self._sampling, whole=self._to_the_end(pool.iteration))
        pool.unready = len(pool.candidates)
        pool.lowest_bound = min(bounds.values(), default=0.0)
        self._undecided[pool.key] = pool

    def _finish(self, completed: Sequence[Node]) -> None:
        """The search is over with these completions, each given as its last step."""
        for node in completed:
            node.fate = Fate.COMPLETED
        self._result = SearchResult(
            tuple(
                Completion(node.path, self.tree.text(node.path), self._path_score(node))
                for node in sorted(completed, key=self._rank)
            )
        )
        self._asks.clear()
        self._unwanted.clear()
        self._undecided.clear()
        self._growing.clear()
        self._scoring.clear()

    def _last(self, iteration: int) -> bool:
        return iteration == self.config.num_iterations

    def _active(self, pool: Pool, node: Node) -> bool:
        """Whether the chain that `node` ends can be expanded."""
        return not self._last(pool.iteration) and _goes_on(node.thought)

    def _sorted_out(self, pool: Pool) -> tuple[list[Node], list[Node]]:
        """The pool's active and ended chains, each in rank order."""
        ranked = [node for _, node in pool.ranked]
        active = [node for node in ranked if self._active(pool, node)]
        return active, [node for node in ranked if not self._active(pool, node)]

    def _path_score(self, node: Node) -> float:
        return self.tree.path_score(node.path, self.config.agg_strategy)

    def _rank(self, node: Node) -> Rank:
        return -self._path_score(node), node.path

    def _bound(self, parent: NodePath) -> float:
        """What a path can score at most that has one more scored step than that of `parent`."""
        return aggregate([*self.tree.scores(parent), 1.0], self.config.agg_strategy)

    def _best_rank(self, candidate: Candidate) -> Rank:
        """The candidate's rank, or before it is scored the best that it can reach."""
        return (
            self._rank(candidate.end) if candidate.ready else (-candidate.bound, candidate.end.path)
        )

    def _to_the_end(self, iteration: int) -> bool:
        return self.config.finish == "eos" and self._last(iteration)

    def _expand(
        self, candidate: Candidate, path: NodePath, sampling: Sampling, *, whole: bool = False
    ) -> None:
        self._growing[path] = candidate
        self._asks.append(Expand(path, self._seed(path), sampling, whole))

    def _grow(self, candidate: Candidate, result: Generated) -> None:
        """Take in new steps and ask for what the candidate needs next."""
        pool = candidate.pool
        whole = self._to_the_end(pool.iteration)
        path = result.node
        # an engine that ran on beyond the delimiter must not lengthen or end the chain
        for thought in result.thoughts if whole else result.thoughts[:1]:
            node = self.tree.get(path) or self.tree.add(path)
            node.thought = thought
            if path[-1] >= 0:  # not a look-ahead
                if len(path) > candidate.start:
                    candidate.end.fate = Fate.EXPANDED
                candidate.end = node
            candidate.tip = node
            path = (*path, 0)
        following = None
        if not whole and _goes_on(candidate.tip.thought):
            following = self._within(
                candidate.start, candidate.end.path, candidate.tip.path, pool.iteration
            )
        if not candidate.grown and (following is None or following.node[-1] < 0):
            candidate.grown = True
            pool.ended += not self._active(pool, candidate.end)
        if following:
            node = self.tree.add(following.node)
            if following.node[-1] < 0:
                node.fate = Fate.LOOKAHEAD
            self._growing[following.node] = candidate
            self._asks.append(following)
            return
        self._ask_scores(candidate, every_step=whole and self.config.agg_strategy != "last")
        self._settle(pool)

    def _within(self, start: int, end: NodePath, tip: NodePath, iteration: int) -> Expand | None:
        """What follows after `tip` within a candidate whose chain goes on; None: its score."""
        if len(end) - start + 1 < self.config.granularity:
            path = (*end, 0)
            return Expand(path, self._seed(path), self._sampling)
        if len(tip) - len(end) < self.config.lookahead and not self._last(iteration):
            path = (*tip, -1)
            return Expand(path, self._seed(path), self._greedy)
        return None

    def _ask_scores(self, candidate: Candidate, *, every_step: bool) -> None:
        tip = candidate.tip.path
        first = candidate.start if every_step else len(tip)
        group = candidate.group
        candidate.pool.ungrown[group] -= 1
        complete = not candidate.pool.ungrown[group]
        for depth in range(first, len(tip) + 1):
            self._scoring[tip[:depth]] = candidate
            self._asks.append(Score(tip[:depth], group, complete and depth == len(tip)))
            candidate.unscored += 1

    def _ready(self, candidate: Candidate) -> None:
        candidate.end.score = candidate.tip.score  # the look-ahead's, if there was one
        candidate.ready = True
        pool = candidate.pool
        pool.unready -= 1
        insort(pool.ranked, (self._rank(candidate.end), candidate.end))
        self._settle(pool)

    def _settle(self, pool: Pool) -> None:
        """Prune what is known to be outranked; decide once everything is known."""
        for candidate in self._needless(pool):
            candidate.end.fate = Fate.PRUNED
            pool.candidates.remove(candidate)
            pool.unready -= 1
            del self._scoring[candidate.tip.path]
            self._take_back(candidate.tip.path)
        if not pool.unready:
            del self._undecided[pool.key]
            self._decide(pool)

    def _take_back(self, node: NodePath) -> None:
        """The score of `node` is not wanted any more."""
        asks = [work for work in self._asks if work.node != node]
        if len(asks) == len(self._asks):
            self._unwanted.append(node)  # it has been handed out
        self._asks = asks

    def _prospects(self, pool: Pool) -> list[Prospect]:
        """The candidates that may be expanded, as far as is known."""
        bar = self._bar(pool)
        chances = self._chances(pool)
        return [
            Prospect(
                candidate.end.path,
                chances[candidate],
                self._estimate(candidate),
                pool.key,
                pool.iteration,
            )
            for candidate in pool.candidates
            if candidate.grown
            and self._active(pool, candidate.end)
            and (bar is None or self._best_rank(candidate) <= bar)
        ]

    def _chances(self, pool: Pool) -> dict[Candidate, float]:
        """A rough probability of each candidate that it will be expanded.

        Of the m candidates that compete, k would be kept. One that is r-th of the s that are
        scored so far is expected to end up (m + 1) / (s + 1) * r-th: order statistics of draws
        from one distribution. Of the others, k / m will be kept.
        """
        competing = len(pool.candidates) - pool.ended
        kept = self._kept(competing)
        scored = [node for _, node in pool.ranked if self._active(pool, node)]
        place = {node.path: r for r, node in enumerate(scored, start=1)}
        spread = kept * (len(scored) + 1) / (competing + 1)
        return {
            candidate: min(1.0, spread / place[path] if path in place else kept / max(competing, 1))
            for candidate in pool.candidates
            for path in (candidate.end.path,)
        }

    def _kept(self, candidates: int) -> int:
        """How many of so many candidates, if their scores were equal, would get children."""
        return sum(share > 0 for share in self._shares([UNKNOWN_SCORE] * candidates))

    def _estimate(self, candidate: Candidate) -> float:
        """The score of its path, or before it is scored that of the path above it."""
        if candidate.ready:
            return self._path_score(candidate.end)
        above = self.tree.scores(candidate.group)
        return aggregate(above, self.config.agg_strategy) if above else UNKNOWN_SCORE

    def _rationed(self, prospects: Sequence[Prospect]) -> list[tuple[Prospect, int]]:
        """The prospects, which are in order, each with the children that it would get."""
        pools: defaultdict[int, list[float]] = defaultdict(list)
        for prospect in prospects:
            pools[prospect.key].append(prospect.score)
        shares = {key: iter(self._shares(scores)) for key, scores in pools.items()}
        return [(prospect, next(shares[prospect.key])) for prospect in prospects]

    def _first_unanswered(
        self, path: NodePath, prospect: Prospect, answered: Mapping[NodePath, tuple[Thought, ...]]
    ) -> Expand | Prospect | None:
        """Follow the candidate that would start at `path` as far as it has been answered.

        What it would ask for next, or the prospect that it would become; None if it ends.
        """
        iteration = prospect.iteration + 1
        whole = self._to_the_end(iteration)
        start, end = len(path), path
        following: Expand | None = Expand(path, self._seed(path), self._sampling, whole)
        while following:
            if (thoughts := answered.get(following.node)) is None:
                return following
            tip = following.node
            end = tip if tip[-1] >= 0 else end
            if whole or not _goes_on(thoughts[0]):
                # a chain that ends during its look-ahead is expanded all the same
                return self._below(end, prospect) if tip[-1] < 0 else None
            following = self._within(start, end, tip, iteration)
        return self._below(end, prospect)

    def _below(self, end: NodePath, above: Prospect) -> Prospect | None:
        if self._last(above.iteration + 1):
            return None
        chance = above.chance * self._kept(self.config.n) / self.config.n
        return Prospect(end, chance, above.score, above.key, above.iteration + 1)


class VotingConfig(StepConfig):
    """Parameters of the tree strategies whose search may stop once its vote is decided."""

    early_stop: bool = False
    """End once the missing completions cannot change the weighted vote."""


Voting = TypeVar("Voting", bound=VotingConfig)


class VotingSearch(StepSearch[Voting]):
    """Base of those strategies."""

    def __init__(
        self,
        config: Voting,
        seed: Callable[[NodePath], int],
        answer_of: AnswerOf | None = None,
    ) -> None:
        """`seed` maps a node to the seed of its sample; `answer_of` is for `early_stop` only."""
        super().__init__(config, seed)
        self._stop = EarlyStop.wanted(config.early_stop, config.n, answer_of)

    def _count(self, completed: Iterable[Node]) -> None:
        """Count completions for an early stop, if one is wanted."""
        if self._stop:
            for node in completed:
                self._stop.add(self.tree.text(node.path), self._path_score(node))

    @property
    def _decided(self) -> bool:
        """Whether the completions counted so far decide the vote, if an early stop is wanted."""
        return self._stop is not None and self._stop.decided


def _goes_on(thought: Thought | None) -> bool:
    """Whether a chain can be continued after its last step.

    A step without text means that the model has nothing more to say.
    """
    assert thought is not None
    return thought.stop is Stop.STEP and bool(thought.text.strip())
