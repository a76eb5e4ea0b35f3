"""What the tree strategies share: iterations that grow candidates, score them and decide.

A pool is a set of candidates that are decided together. A candidate is one or more new steps below
a node: `granularity` steps, or with `finish="eos"` in the last iteration the rest of the chain;
then perhaps look-ahead steps; then a score. When every candidate of a pool has its score, the
strategy's `_decide` says what becomes of them. What is awaited is kept by node, so a result that
is late, unknown or a duplicate finds nothing and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
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
    NodePath,
    Sampling,
    Score,
    Scored,
    SearchResult,
    Stop,
    Thought,
    Work,
)


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


@dataclass(slots=True)
class Pool:
    """Candidates that are decided together; `key` tells a strategy's pools apart."""

    key: int
    iteration: int
    """Counted from 1."""
    candidates: list[_Candidate] = field(default_factory=list)
    unready: int = 0

    @property
    def ends(self) -> list[Node]:
        """The last step of every candidate, in the order in which they were opened."""
        return [candidate.end for candidate in self.candidates]


@dataclass(slots=True)
class _Candidate:
    pool: Pool
    start: int
    """Depth of its first step."""
    end: Node
    """Its last step so far."""
    tip: Node
    """The same, or the last look-ahead step after it."""
    unscored: int = 0


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
        self._growing: dict[NodePath, _Candidate] = {}
        self._scoring: dict[NodePath, _Candidate] = {}
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

    def result(self) -> SearchResult:
        """The completions, best first; raises RuntimeError before `done`."""
        if self._result is None:
            raise RuntimeError("the search is not done")
        return self._result

    @abstractmethod
    def _decide(self, pool: Pool) -> None:
        """Every candidate of the pool is scored: complete, prune, open the next, or finish."""

    def _open(self, starts: Iterable[NodePath], *, after: Pool | None = None, key: int = 0) -> None:
        """Begin the iteration after that of `after` with candidates that start at new nodes."""
        pool = Pool(after.key, after.iteration + 1) if after else Pool(key, 1)
        for path in starts:
            node = self.tree.add(path)
            candidate = _Candidate(pool, len(path), node, node)
            pool.candidates.append(candidate)
            self._expand(candidate, path, self._sampling, whole=self._to_the_end(pool))
        pool.unready = len(pool.candidates)

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
        self._growing.clear()
        self._scoring.clear()

    def _last(self, pool: Pool) -> bool:
        """Whether the pool's iteration is the last."""
        return pool.iteration == self.config.num_iterations

    def _active(self, pool: Pool, node: Node) -> bool:
        """Whether the chain that `node` ends can be expanded."""
        return not self._last(pool) and _goes_on(node.thought)

    def _sorted_out(self, pool: Pool) -> tuple[list[Node], list[Node]]:
        """The pool's active and ended chains, each in rank order."""
        ranked = sorted(pool.ends, key=self._rank)
        active = [node for node in ranked if self._active(pool, node)]
        return active, [node for node in ranked if not self._active(pool, node)]

    def _path_score(self, node: Node) -> float:
        return self.tree.path_score(node.path, self.config.agg_strategy)

    def _rank(self, node: Node) -> tuple[float, NodePath]:
        """Sort key: best score first, ties by path."""
        return -self._path_score(node), node.path

    def _to_the_end(self, pool: Pool) -> bool:
        return self.config.finish == "eos" and self._last(pool)

    def _expand(
        self, candidate: _Candidate, path: NodePath, sampling: Sampling, *, whole: bool = False
    ) -> None:
        self._growing[path] = candidate
        self._asks.append(Expand(path, self._seed(path), sampling, whole))

    def _grow(self, candidate: _Candidate, result: Generated) -> None:
        """Take in new steps and ask for what the candidate needs next."""
        whole = self._to_the_end(candidate.pool)
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
        if not whole and _goes_on(candidate.tip.thought):
            end, tip = candidate.end.path, candidate.tip.path
            if len(end) - candidate.start + 1 < self.config.granularity:
                path = self.tree.add((*end, 0)).path
                self._expand(candidate, path, self._sampling)
                return
            if len(tip) - len(end) < self.config.lookahead and not self._last(candidate.pool):
                path = self.tree.add((*tip, -1)).path
                self.tree[path].fate = Fate.LOOKAHEAD
                self._expand(candidate, path, self._greedy)
                return
        self._ask_scores(candidate, every_step=whole and self.config.agg_strategy != "last")

    def _ask_scores(self, candidate: _Candidate, *, every_step: bool) -> None:
        tip = candidate.tip.path
        first = candidate.start if every_step else len(tip)
        for depth in range(first, len(tip) + 1):
            self._scoring[tip[:depth]] = candidate
            self._asks.append(Score(tip[:depth]))
            candidate.unscored += 1

    def _ready(self, candidate: _Candidate) -> None:
        candidate.end.score = candidate.tip.score  # the look-ahead's, if there was one
        pool = candidate.pool
        pool.unready -= 1
        if not pool.unready:
            self._decide(pool)


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
