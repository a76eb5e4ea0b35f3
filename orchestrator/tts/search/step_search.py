"""The base of the tree strategies: iterations that grow candidates, score them and decide.

A pool is a set of candidates that are decided together. A candidate is one new step at the end of a
chain, or with `finish="eos"` in the last iteration the rest of the chain; then it gets a score. Its
states (`candidates.CandidateState`):

    _open ──► GROWING ──► SCORING ──► READY ────► _decide(pool): its end is EXPANDED, PRUNED,
                                                  COMPLETED or SURPLUS

`_decide` is called when every candidate of the pool is READY. `_finish` ends the whole search,
whatever state the candidates of other pools are in. Pending requests are kept by node, so a late,
unknown or duplicate result matches none and changes nothing.

Two differences stand beside it: `pruning` prunes candidates whose score cannot matter any more, and
`foresight` says which candidates may be asked for next.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from . import foresight
from .base import StepConfig, TreeSearch
from .candidates import Candidate, CandidateState, Pool, goes_on
from .protocol import Expand, Generated, Guess, Score, Scored
from .thought import MAX_SCORE, Completion, Fate, NodePath, SeedOf, Thought, aggregate
from .tree import Node, Rank

BY_RANK = attrgetter("rank")
"""Sort key of candidates that are ready."""

AnyStepConfig = TypeVar("AnyStepConfig", bound=StepConfig)


class StepSearch(TreeSearch[AnyStepConfig], Generic[AnyStepConfig]):
    """Base of the tree strategies.

    A strategy opens its first pools in its constructor (`_open`) and defines `_decide`, which opens
    the next pool or ends the search (`_finish`); `_active_and_ended` and `_path_score` help it to
    choose. Optional: `_is_active` for chains that end in ways of their own; `_shares` and `_cutoff`
    for foresight; `_may_be_pruned` and `_advanced` for `pruning`.
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

    def _shares(self, scores: Sequence[float]) -> list[int]:
        """How many children the candidates of one pool with these scores, best first, would get."""
        return [0] * len(scores)

    def _cutoff(self, pool: Pool) -> Rank | None:
        """The rank that a candidate must reach to be expanded, as far as it is known."""
        return None

    def _is_active(self, pool: Pool, node: Node) -> bool:
        """Whether the chain that `node` ends can be expanded after this pool's iteration."""
        return not pool.last and goes_on(node.thought)

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

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for later, best first; see the module foresight."""
        prospects = [
            prospect
            for pool in self._undecided.values()
            for prospect in foresight.prospects(pool, self._cutoff(pool), self._shares)
        ]
        return foresight.foresee(prospects, answered, self.config, self._request, self._shares)

    def expandable(self) -> set[NodePath]:
        """Nodes that await their pool's decision and may yet be expanded."""
        return {
            candidate.end.path
            for pool in self._undecided.values()
            for candidate in foresight.expandable(pool, self._cutoff(pool))
        }

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
        completions = tuple(
            Completion(node.path, self.tree.text(node.path), self._path_score(node))
            for node in sorted(completed, key=self._rank)
        )
        self._end(completions)

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

        The first is the path's score with one more step of the best score, the second without one.
        """
        above, how = self.tree.scores(parent), self.config.agg_strategy
        prior = aggregate(above, how) if above else foresight.UNKNOWN_SCORE
        return aggregate([*above, MAX_SCORE], how), prior

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
            self._asks.append(Score(path, need_open=self._may_be_pruned(candidate)))
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
