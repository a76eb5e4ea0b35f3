"""The loop of the strategies: candidates grow, are scored, and are decided in pools.

A pool is a set of candidates that are decided together. A candidate is one new step at the end of a
chain, or in a pool that is `whole` the rest of the chain; then it gets a score:

    _open ──► GROWING ──► SCORING ──► READY ────► _decide(pool): its end is EXPANDED, PRUNED,
                                                  COMPLETED or SURPLUS

A GROWING candidate has no step yet; a SCORING one has nodes that are `awaited`, a READY one a
`rank`. `_decide` is called when every candidate of the pool is READY. `_finish` ends the whole
search, whatever state the candidates of other pools are in.

Two objects of `step_hints` may stand beside the loop, which change no result: one withdraws
candidates whose score cannot matter any more, one guesses what may be asked for next.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

from .cut_short import completions_so_far
from .protocol import Search, SearchConfig, SearchResult
from .seeds import SeedOf
from .thought import (
    Completion,
    Expand,
    Fate,
    Generated,
    NodePath,
    Score,
    Scored,
    Thought,
    Work,
    aggregate,
)
from .tree import Node, Rank, Tree

UNKNOWN_SCORE = 0.5
"""The score that a path is taken to have before any of its steps has been scored."""

_RANK = attrgetter("rank")

AnyConfig = TypeVar("AnyConfig", bound=SearchConfig)


@dataclass(slots=True, eq=False)
class Pool:
    """Candidates that are decided together; `key` identifies the pool within its strategy."""

    key: int
    iteration: int
    """Number of the iteration, starting at 1."""
    whole: bool
    """Whether its candidates are generated to the end of the sequence."""
    candidates: list[Candidate] = field(default_factory=list)
    """The candidates in the order in which they were opened, less those that were pruned early."""
    ranked: list[Candidate] = field(default_factory=list)
    """The ready candidates, in rank order."""
    ranked_active: list[Candidate] = field(default_factory=list)
    """The ready candidates that are active, in rank order."""
    inactive: int = 0
    """Number of candidates whose chains have ended."""

    @property
    def ready(self) -> bool:
        """Whether no candidate waits for a step or a score."""
        return len(self.ranked) == len(self.candidates)

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
    active: bool = True
    """Whether its chain can be expanded; known once it is generated."""
    awaited: list[NodePath] = field(default_factory=list)
    """The nodes for whose scores it waits."""
    rank: Rank | None = None
    """Its rank, once it is ready."""


class Pruner:
    """Prunes candidates before their scores are known. This one prunes none."""

    def may_prune(self, candidate: Candidate) -> bool:
        """Whether a candidate may be pruned while it waits for its score."""
        return False

    def advance(self, candidate: Candidate) -> None:
        """Prune what cannot matter, now that a candidate has got its step or its score."""

    def needs(self) -> dict[NodePath, bool]:
        """The scores that may be pruned, as `Hints.needs` has them."""
        return {}


class StepSearch(Search, Generic[AnyConfig]):
    """Base of the strategies, with the loop.

    A strategy opens its first pools in its constructor (`_open`) and defines `_decide`, which opens
    the next pool or ends the search (`_finish`). Optional: `places` and `winners`, the rule where
    ranks decide which candidates go on, and `_is_active` for chains that end in ways of their own.
    """

    tree: Tree

    def __init__(self, config: AnyConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        self.config = config
        self.tree = Tree()
        self.pruner = Pruner()
        self.undecided: dict[int, Pool] = {}
        """The pools whose candidates may yet be expanded, by key."""
        self._seed, self._sampling = seed, config.sampling
        self._asks: list[Work] = []
        self._awaiting_step: dict[NodePath, Candidate] = {}
        self._awaiting_score: dict[NodePath, Candidate] = {}
        self._result: SearchResult | None = None

    @abstractmethod
    def _decide(self, pool: Pool) -> None:
        """Every candidate of the pool is ready: complete, prune, open the next pool, or finish."""

    def places(self, pool: Pool) -> int | None:
        """How many candidates of a pool go on; None where more than their ranks decides it."""
        return None

    def winners(self, pool: Pool) -> Sequence[Candidate]:
        """The ready candidates that take the places unless better ones come, in rank order."""
        return ()

    def _is_active(self, pool: Pool, node: Node) -> bool:
        """Whether the chain that `node` ends can be expanded after this pool's iteration."""
        assert node.thought is not None
        return node.thought.goes_on and not (pool.whole or self.config.is_last(pool.iteration))

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; see Search."""
        node = result.node
        if isinstance(result, Generated):
            if candidate := self._awaiting_step.pop(node, None):
                self._grow(candidate, result.thoughts)
        elif candidate := self._awaiting_score.get(node):
            self.tree.lock_score(node, result.score)  # first: it may raise
            del self._awaiting_score[node]
            candidate.awaited.remove(node)
            if not candidate.awaited:
                self._rank_candidate(candidate)

    def result(self) -> SearchResult | None:
        """The completions, best first (unscored: by path)."""
        return self._result

    def stop(self) -> SearchResult:
        """End the search with n completions at most."""
        how, n = self.config.agg_strategy, self.config.n
        return self._result or self._end(completions_so_far(self.tree, how, n))

    def request(self, path: NodePath, *, whole: bool) -> Expand:
        """The request of a candidate that starts at `path`: one step, or the rest of its chain."""
        return Expand(path, self._seed(path), self._sampling, whole)

    def withdraw(self, candidate: Candidate) -> bool:
        """Prune a candidate that waits for its score; True if `ask` has returned that request."""
        node = candidate.end.path
        candidate.end.fate = Fate.PRUNED
        candidate.pool.candidates.remove(candidate)
        candidate.awaited.clear()
        del self._awaiting_score[node]
        asks, self._asks = self._asks, [work for work in self._asks if work.node != node]
        return len(asks) == len(self._asks)

    def _open(
        self,
        starts: Iterable[NodePath],
        *,
        after: Pool | None = None,
        key: int | None = None,
        whole: bool = False,
    ) -> None:
        """Begin the iteration after that of `after` with candidates that start at new nodes.

        The pool has the key of `after` unless it is given one. With `whole` the candidates are the
        rest of their chains, as in a last iteration with `finish="eos"`.
        """
        iteration = after.iteration + 1 if after else 1
        if key is None:
            key = after.key if after else 0
        pool = Pool(key, iteration, whole or self.config.is_whole(iteration))
        bounds: dict[NodePath, tuple[float, float]] = {}  # siblings have the same
        for path in starts:
            if (above := path[:-1]) not in bounds:
                bounds[above] = self._upper_bound_and_prior(above)
            candidate = Candidate(pool, len(path), self.tree.add(path), *bounds[above])
            pool.candidates.append(candidate)
            self._awaiting_step[path] = candidate
            self._asks.append(self.request(path, whole=pool.whole))
        self.undecided[pool.key] = pool

    def _upper_bound_and_prior(self, parent: NodePath) -> tuple[float, float]:
        """The most that a candidate below `parent` can score, and what it is expected to score.

        The first is the path's score with one more step of the best score, the second without one,
        as it stays after a step without text.
        """
        above = [self.tree.value(node) for node in self.tree.counted_nodes(parent)]
        how = self.config.agg_strategy
        prior = aggregate(above, how) if above else UNKNOWN_SCORE
        # a calibration may value the best step below 1, and so below a path without it
        return max(prior, aggregate([*above, self.tree.max_value], how)), prior

    def _grow(self, candidate: Candidate, thoughts: Sequence[Thought]) -> None:
        """Take in the candidate's step, or the rest of its chain, and ask for the scores."""
        self._write(candidate, thoughts)
        candidate.active = self._is_active(candidate.pool, candidate.end)
        candidate.pool.inactive += not candidate.active
        candidate.awaited = self._nodes_to_score(candidate)
        for path in candidate.awaited:
            self._awaiting_score[path] = candidate
            self._asks.append(Score(path, may_be_pruned=self.pruner.may_prune(candidate)))
        if candidate.awaited:
            self._advance(candidate)
        else:
            self._rank_candidate(candidate)

    def _write(self, candidate: Candidate, thoughts: Sequence[Thought]) -> None:
        """Put thoughts into the tree: one node each, from the candidate's first on."""
        path = candidate.end.path
        for thought in thoughts:
            above = candidate.end.thought  # none before the first
            if above and not (candidate.pool.whole or above.thinking):
                break  # an engine that ran on must not lengthen or end the chain
            node = self.tree.get(path) or self.tree.add(path)
            node.thought = thought
            if node is not candidate.end:
                candidate.end.fate = Fate.EXPANDED
                candidate.end = node
            path = (*path, 0)

    def _nodes_to_score(self, candidate: Candidate) -> list[NodePath]:
        """The last step, or where the aggregation needs them the new steps that are judged."""
        end = candidate.end.path
        if not candidate.pool.whole or self.config.agg_strategy == "last":
            return [end]
        *above, _ = self.tree.chain(end)[candidate.start - 1 :]
        answers = [each.path for each in above if each.thought and not each.thought.thinking]
        return [*answers, end]

    def _rank_candidate(self, candidate: Candidate) -> None:
        """Place a candidate that waits for nothing more among those of its pool."""
        pool = candidate.pool
        candidate.rank = self._rank(candidate.end)
        for ranked in [pool.ranked, pool.ranked_active] if candidate.active else [pool.ranked]:
            insort(ranked, candidate, key=_RANK)
        self._advance(candidate)

    def _advance(self, candidate: Candidate) -> None:
        """Decide the pool of a candidate with a new step or score, once the whole pool is ready."""
        self.pruner.advance(candidate)
        pool = candidate.pool
        if pool.ready:
            del self.undecided[pool.key]
            self._decide(pool)

    def _finish(self, completed: Sequence[Node]) -> None:
        """End the search with these completions, each given as its last step."""
        for node in completed:
            node.fate = Fate.COMPLETED
        self._end(tuple(map(self._completion, sorted(completed, key=self._rank))))

    def _end(self, completions: tuple[Completion, ...]) -> SearchResult:
        """End the search: further results change nothing."""
        result = self._result = SearchResult(completions, self.tree)
        self._asks.clear()
        self.undecided.clear()
        self._awaiting_step.clear()
        self._awaiting_score.clear()
        return result

    def _completion(self, node: Node) -> Completion:
        return self.tree.completion(node.path, self.config.agg_strategy)

    def _path_score(self, node: Node) -> float:
        return self.tree.path_score(node.path, self.config.agg_strategy)

    def _rank(self, node: Node) -> Rank:
        return self.tree.rank(node.path, self.config.agg_strategy)
