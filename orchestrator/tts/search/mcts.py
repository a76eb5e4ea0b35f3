"""MCTS: simulations that walk from the root to the end of a chain, guided by PUCT.

    root ─┬─ 0 0.2            a simulation opens child 0 of the root, which scores badly, so it
          └─ 1 0.9 ─┬─ 1.0 ✓  opens child 1 and walks on from there, to the end of a chain at 1.0;
                    └─ 1.1 .. the next one may open 1.1, go to 0, or open a third child

The verifier's score is a node's first value, in place of a random playout; a simulation then adds
the score of the chain that it completed. Values are normalised between the least and the most seen
in the tree, so the scale of the scores does not matter (affine maps of them change nothing). At
every node a simulation chooses among the children and a new child (progressive widening). The value
of a new child is estimated from all children so far: they have a share of their parents' values, on
average. So a node gets as many children as it takes to find a good one: one where steps are easy,
many where they are hard. As long as all values are equal, every simulation is a chain of its own.

`parallel` simulations are under way at a time, in waves: every one of them walks on, in the order
of their numbers, until it stands at a node that needs a new child; then all these children are
generated and scored, and the next wave begins. So the algorithm, not timing, decides which results
of other simulations a simulation sees.

PUCT after Rosin 2011 and Silver et al., "Mastering the game of Go without human knowledge" (2017);
progressive widening after Coulom, "Computing Elo ratings of move patterns in the game of Go"
(2007), with the value of a new child instead of a fixed growth rate (first-play urgency: Gelly
et al. 2006); normalised values after Schrittwieser et al., "Mastering Atari, Go, chess and shogi by
planning with a learned model" (2020), appendix B; virtual losses after Chaslot et al., "Parallel
Monte-Carlo tree search" (2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from .protocol import Search, StepConfig
from .seeds import SeedOf
from .step_hints import StepHints, best_get, expected_score
from .step_search import Pool, StepSearch
from .thought import Completion, Fate, NodePath, significant
from .tree import Node, Rank
from .votes import AnswerOf


@dataclass(slots=True)
class SeenValues:
    """The values in a tree: their range, and the share of its parent's value that a child has."""

    least: float = math.inf
    most: float = -math.inf
    children: float = 0.0
    """Sum of the children's values, each at most its parent's."""
    parents: float = 0.0
    """Sum of their parents' values, without those of the root, which counts as the most seen."""
    count: int = 0
    """Children that were compared with a parent other than the root."""
    below_root: int = 0
    """Children of the root."""

    @property
    def differ(self) -> bool:
        """Whether any two of them do."""
        return self.least < self.most

    def extend(self, value: float) -> None:
        """Extend the range to a value."""
        self.least, self.most = min(self.least, value), max(self.most, value)

    def compare(self, child: float, parent: float | None) -> None:
        """Compare a child's value with its parent's; None: the root."""
        if parent is None:
            self.below_root += 1
            self.children = significant(self.children + child)
        else:
            self.count += 1
            self.children = significant(self.children + min(child, parent))
            self.parents = significant(self.parents + parent)

    def normalised(self, total: float, visits: int = 1) -> float:
        """The sum of the values of some visits, each from 0 (least seen) to 1 (most seen)."""
        span = self.most - self.least
        return (total - visits * self.least) / span if span > 0 else 0.0

    def prospect(self, parent: float | None) -> float:
        """The value that a new child is expected to have; half a point is what is believed before
        any child is seen.
        """
        children = self.normalised(self.children, self.count + self.below_root)
        parents = self.normalised(self.parents, self.count) + self.below_root
        share = (0.5 + children) / (1.0 + parents)
        return significant(share * (1.0 if parent is None else self.normalised(parent)))


MayEnd = Callable[[Sequence[Completion], int], bool]
"""Whether a search may end, given its new completions and the tokens of its tree."""


class MctsConfig(StepConfig):
    """Parameters of MCTS; `n` is the number of simulations, each of which completes a chain.

    `num_iterations` limits the depth of a chain.
    """

    width: int = Field(default=16, ge=1, le=1000)
    """Most children of a node; only one whose chains have all been completed gets more."""
    exploration: float = Field(default=0.2, ge=0, le=1e3)
    """Weight of PUCT's exploration term; 0 goes where the mean value is best."""
    parallel: int = Field(default=4, ge=1, le=100_000)
    """Simulations at a time. Changes results: they see each other's virtual losses."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return MctsSearch(self, seed)


@dataclass(slots=True, eq=False)
class NodeVisits:
    """Statistics of a node: the value of the chains through it, and its children."""

    node: Node
    pool: Pool | None = None
    """The pool in which it grew; None for the root, whose node is not part of the tree."""
    is_end: bool = False
    """Whether its chain ends there."""
    visits: int = 1
    """Number of simulations that went through it and ended; its own score counts as one."""
    value: float | None = None
    """Its own value; None for the root."""
    total: float = 0.0
    """Sum of the values of these simulations, and its own."""
    under_way: int = 0
    """Simulations that go through it and have not ended; each counts as a visit of the least
    value."""
    children: list[NodeVisits] = field(default_factory=list)
    opening: int = 0
    """Children that are awaited."""
    exhausted: bool = False
    """Whether a simulation has ended there; none goes there again."""


Simulation = list[NodeVisits]
"""The nodes on a simulation's way, from the root to where it stands."""


class MctsSearch(StepSearch[MctsConfig]):
    """Runs simulations in waves; the children that a wave opens below one node are a pool."""

    def __init__(self, config: MctsConfig, seed: SeedOf, may_end: MayEnd | None = None) -> None:
        """`may_end` is asked before each wave; by default all n simulations come to their ends."""
        super().__init__(config, seed)
        self._may_end = may_end
        self._root = NodeVisits(Node(()))
        self._begun = 0
        """Number of simulations that have begun."""
        self._under_way: list[Simulation] = []
        """Simulations that have not ended, in the order of their numbers."""
        self._expansions = 0
        """How many there were; each has its number as the key of its pool."""
        self._expanding: dict[int, NodeVisits] = {}
        """The nodes whose children are awaited, by the keys of the pools."""
        self._ready: list[tuple[Pool, float | None]] = []
        """The pools of this wave whose candidates wait for those of others, each with the value of
        the node above it."""
        self._values = SeenValues()
        self._unexpanded: dict[NodePath, Node] = {}
        """The nodes that may yet be expanded for the first time."""
        self._ends: list[Node] = []
        """The nodes at which chains have ended, whether or not a simulation came there."""
        self._completed: list[Node] = []
        """The chains that simulations completed, in that order."""
        self._reported = self._tokens = 0
        """Completed chains that `may_end` has seen; tokens of the tree."""
        # most of the time, the best of the new children gets the next child; a later simulation may
        # turn to any node that has no children yet
        self.hints = StepHints(self, best_get(1, places=1), self._unexpanded.keys())
        self._next_wave()

    def _decide(self, pool: Pool) -> None:
        """The children of one node are ready; the last ones of a wave let the next begin."""
        self.undecided[pool.key] = pool
        place = self._expanding.pop(pool.key)
        self._ready.append((pool, place.value))
        place.opening = 0
        for candidate in pool.candidates:
            value, node = expected_score(candidate), candidate.end
            self._values.extend(value)
            is_end = not candidate.active
            place.children.append(NodeVisits(node, pool, is_end, value=value, total=value))
            if is_end:
                self._ends.append(node)
            else:
                self._unexpanded[node.path] = node
            if self._may_end:
                new = self.tree.chain(node.path)[candidate.start - 1 :]
                self._tokens += sum(len(each.thought.token_ids) for each in new if each.thought)
        if not self._expanding:
            self._next_wave()

    def _next_wave(self) -> None:
        """Every simulation walks on until it wants a new child; where one ends, another begins.

        Then the nodes at which they stand get these children.
        """
        self._ready.sort(key=lambda each: each[0].key)  # not as timing had it
        for pool, above in self._ready:
            for candidate in pool.candidates:
                self._values.compare(expected_score(candidate), above)
            del self.undecided[pool.key]
        self._ready.clear()
        walking, self._under_way = self._under_way, []
        for simulation in walking:
            self._walk(simulation)
        while len(self._under_way) < self.config.parallel and self._begun < self.config.n:
            self._begun += 1
            self._walk([self._root])
        if not self._under_way or self._ends_here():
            self._finish_all()
            return
        for place in dict.fromkeys(simulation[-1] for simulation in self._under_way):
            self._expand(place)

    def _ends_here(self) -> bool:
        """Whether a wave that could begin need not."""
        if self._may_end is None:
            return False
        new = self._completed[self._reported :]
        self._reported = len(self._completed)
        return self._may_end(list(map(self._completion, new)), self._tokens)

    def _walk(self, simulation: Simulation) -> None:
        """Walk on to a node where a new child is the best choice, if not to the end of a chain."""
        while child := self._choose(simulation[-1]):
            child.under_way += 1
            simulation.append(child)
            if child.is_end:
                self._complete(simulation)
                return
        simulation[-1].opening += 1
        self._under_way.append(simulation)

    def _choose(self, place: NodeVisits) -> NodeVisits | None:
        """The child to walk on to; None for a new one."""
        if not self._values.differ:  # nothing tells children apart: chains are independent
            untouched = (c for c in place.children if c.visits + c.under_way == 1)
            return next(untouched, None)
        full = len(place.children) + place.opening >= self.config.width
        prospect = None if full else self._values.prospect(place.value)
        return best_child(place, self.config.exploration, self._values.normalised, prospect)

    def _complete(self, simulation: Simulation) -> None:
        """The simulation has come to the end of a chain, whose score is its value."""
        end = simulation[-1]
        assert end.value is not None
        end.exhausted = True
        self._completed.append(end.node)
        for place in simulation[1:]:
            place.under_way -= 1
            place.visits += 1
            place.total += end.value

    def _expand(self, place: NodeVisits) -> None:
        """Ask for as many new children of a node as there are simulations that stand at it."""
        place.node.fate = Fate.EXPANDED
        self._unexpanded.pop(place.node.path, None)
        self._expansions += 1
        self._expanding[self._expansions] = place
        first = len(place.children)
        children = ((*place.node.path, first + child) for child in range(place.opening))
        self._open(children, after=place.pool, key=self._expansions)

    def _finish_all(self) -> None:
        """The completed chains come out; of the rest nothing will be asked any more."""
        for node in self._unexpanded.values():
            node.fate = Fate.PRUNED
        for node in self._ends:
            node.fate = Fate.SURPLUS
        self._unexpanded.clear()
        self._finish(self._completed)


def best_child(
    place: NodeVisits,
    exploration: float,
    normalised: Callable[[float, int], float],
    prospect: float | None,
) -> NodeVisits | None:
    """The best child by PUCT among those that are not exhausted; None if a new one is better.

    Of children that N visits went to in all, one with n visits of mean value q has the bound
    q + exploration * sqrt(N) / (1 + n); `normalised` brings a sum of values to the scale of q. A
    new child has the same bound with q = `prospect` and n = the number of children, for they are
    what this choice has led to; None: there may be none, unless all children are exhausted. Ties go
    to the child with the best score, then to the first path, and to a new child last.
    """
    visits = sum(child.visits + child.under_way for child in place.children) + place.opening
    explored = exploration * math.sqrt(visits)
    best: NodeVisits | None = None
    best_rank: Rank = (math.inf, 0.0, ())
    for child in place.children:
        if not child.exhausted:
            own = child.visits + child.under_way
            mean = normalised(child.total, child.visits) / own
            bound = significant(mean + explored / (1 + own))
            rank = -bound, -(child.node.score or 0.0), child.node.path
            if rank < best_rank:
                best, best_rank = child, rank
    if best is None or prospect is None:
        return best
    another = significant(prospect + explored / (1 + len(place.children) + place.opening))
    return best if -best_rank[0] >= another else None
