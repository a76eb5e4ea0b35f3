"""AB-MCTS: Thompson sampling decides where the next chain branches off, wider or deeper.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ✓0.4     trial 1: nothing is there, so a chain from the root
          └─ 1 ─┬─ 1.0 ─ 1.0.0 ✓0.8   trial 2: wider at the root
                └─ 1.1 ─ 1.1.0 ✓0.9   trial 3: deeper, to step 1; wider there

A trial walks down from the root. At each step it either goes wider, and a new chain branches off
there to its end, or deeper, to one of the steps that follow. The chain's score updates every choice
on the way. A choice is drawn from the posterior of its mean.

After Inoue et al., "Wider or deeper? Scaling LLM inference-time compute with adaptive branching
tree search" (arXiv 2503.04412), AB-MCTS-A, and the authors' code (SakanaAI/treequest). There, a
node is a whole answer, and below it are its refinements; here, a node is a step, and below it are
the ways in which its chain goes on.

    tts bench demo --strategy examples/ab_mcts.py:AB_MCTS --n 16
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise, takewhile

from pydantic import Field

from tts.search import (
    AnswerOf,
    Completion,
    Expand,
    Fate,
    Generated,
    NodePath,
    Score,
    Scored,
    Search,
    SearchConfig,
    SearchResult,
    SeedOf,
    Thought,
    Tree,
    Work,
    significant,
    unit_interval,
)
from tts.strategies.strategy import Strategy

PRIOR_MEAN = 0.0
"""The mean that is believed in before any value is seen."""
PRIOR_WEIGHT = 1.0
"""How many values that belief is worth (kappa)."""
PRIOR_FREEDOM = 1.0
"""How many values the belief about the variance is worth (nu)."""
PRIOR_VARIANCE = 0.1
"""The variance that is believed in before any value is seen (tau squared)."""


@dataclass(slots=True)
class Posterior:
    """Posterior of the mean of normal values with unknown variance.

    Its conjugate prior is the normal-inverse-chi-squared distribution (Murphy, "Probabilistic
    machine learning: advanced topics", 3.4.3.3), so the mean has a Student t distribution. The
    numbers of the prior are treequest's.
    """

    count: int = 0
    mean: float = 0.0
    """Mean of the observed values."""
    squares: float = 0.0
    """The sum of their squared distances from that mean."""

    def see(self, value: float) -> None:
        """Take in one value (Welford's update)."""
        self.count += 1
        distance = value - self.mean
        self.mean += distance / self.count
        self.squares += distance * (value - self.mean)

    @property
    def location(self) -> float:
        """The most likely mean."""
        return (PRIOR_WEIGHT * PRIOR_MEAN + self.count * self.mean) / (PRIOR_WEIGHT + self.count)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the t distribution."""
        return PRIOR_FREEDOM + self.count

    @property
    def scale(self) -> float:
        """Scale of the t distribution."""
        weight = PRIOR_WEIGHT + self.count
        surprise = PRIOR_WEIGHT * self.count / weight * (self.mean - PRIOR_MEAN) ** 2
        variance = (PRIOR_FREEDOM * PRIOR_VARIANCE + self.squares + surprise) / self.freedom
        return math.sqrt(variance / weight)

    def draw(self, first: float, second: float) -> float:
        """Draw a mean from the posterior, using two numbers in (0, 1]."""
        return self.location + self.scale * student_t(self.freedom, first, second)


def student_t(freedom: float, first: float, second: float) -> float:
    """A draw of Student's t distribution from two independent uniform ones of (0, 1].

    Without rejection, so that a draw takes two numbers, no more and no less: Bailey, "Polar
    generation of random variates with the t-distribution" (1994).
    """
    radius = math.sqrt(freedom * (first ** (-2 / freedom) - 1))
    return radius * math.cos(2 * math.pi * second)


class AbMctsConfig(SearchConfig):
    """Parameters of AB-MCTS; `n` is the number of trials, each of which completes a chain."""

    parallel: int = Field(default=4, ge=1, le=100_000)
    """Trials in flight. Changes results: a trial does not know the `parallel` - 1 before it."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return AbMctsSearch(self, seed)


AB_MCTS = Strategy(
    "ab-mcts",
    "n chains that branch off wider or deeper by Thompson sampling, weighted vote",
    AbMctsConfig,
    "weighted",
)


@dataclass(slots=True, eq=False)
class Branching:
    """A step, or the root, where chains may branch off, with the posterior of each choice."""

    path: NodePath
    value: Posterior = field(default_factory=Posterior)
    """Worth of the chains that go through this node; siblings are compared by it."""
    wider: Posterior = field(default_factory=Posterior)
    """Worth of the chains that branched off at this node."""
    deeper: Posterior = field(default_factory=Posterior)
    """Worth of the chains that branched off further down."""
    children: list[Branching] = field(default_factory=list)
    """The steps after it that are followed by others, in the order of their paths."""


Draw = Callable[[Posterior], float]
"""A mean drawn from what is believed of it."""


def walk(root: Branching, draw: Draw) -> list[Branching]:
    """The way from the root to where the next chain branches off (Thompson sampling).

    Ties go to the first choice: wider before deeper, then the smaller path.
    """
    way = [root]
    while children := way[-1].children:
        if draw(way[-1].wider) >= draw(way[-1].deeper):
            break
        way.append(max(children, key=lambda child: draw(child.value)))
    return way


def back_up(way: Sequence[Branching], inner: Iterable[NodePath], value: float) -> None:
    """Add the value of a chain that branched off at the end of the way, with these inner steps.

    Each of its own steps counts as `wider` at the step before it.
    """
    for above, here in pairwise(way):
        above.deeper.see(value)
        here.value.see(value)
    here = way[-1]
    here.wider.see(value)
    for path in inner:
        child = Branching(path)
        child.value.see(value)
        child.wider.see(value)
        here.children.append(child)
        here = child


@dataclass(slots=True, eq=False)
class Trial:
    """One chain that branches off."""

    way: list[Branching]
    """The nodes from the root to the one at which it branches off."""
    start: NodePath
    """Its first step."""
    steps: list[NodePath] = field(default_factory=list)
    """Its steps, once they are generated."""
    unscored: set[NodePath] = field(default_factory=set)
    """The steps whose scores it waits for."""

    @property
    def ready(self) -> bool:
        """Whether the trial waits for no result."""
        return bool(self.steps) and not self.unscored


class AbMctsSearch(Search):
    """The state machine. Trial i begins when trials 0 to i - `parallel` have been told, in order.

    It guesses nothing ahead: where a chain branches off depends on scores that are not known yet.
    """

    tree: Tree

    def __init__(self, config: AbMctsConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample, and (-1, trial, i) to a random number."""
        self.config = config
        self.tree = Tree()
        self._asks: list[Work] = []
        self._result: SearchResult | None = None
        self._seed = seed
        self._root = Branching(())
        self._trials: list[Trial] = []
        """All trials that have begun."""
        self._told = 0
        """Trials from the first on whose values are known to the choices."""
        self._children: Counter[NodePath] = Counter()
        """Children of a node that have been asked for or grown."""
        self._growing: dict[NodePath, Trial] = {}
        """Trials whose chains are being generated, by their first steps."""
        self._scoring: dict[NodePath, Trial] = {}
        """Trials that wait for scores, by the steps."""
        for _ in range(min(config.parallel, config.n)):
            self._begin()

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def result(self) -> SearchResult | None:
        """The completions, best first."""
        return self._result

    def stop(self) -> SearchResult:
        """The chains so far."""
        if self._result is None:
            self._result = super().stop()
        return self._result

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if self._result:
            return
        if isinstance(result, Generated):
            if trial := self._growing.pop(result.node, None):
                self._grow(trial, result.thoughts)
        elif result.node in self._scoring:
            self.tree.lock_score(result.node, result.score)
            trial = self._scoring.pop(result.node)
            trial.unscored.remove(result.node)
            if trial.ready:
                self._tell_ready()

    def _begin(self) -> None:
        """Decide where the next chain branches off, and ask for it."""
        way = walk(self._root, self._drawing(len(self._trials)))
        above = way[-1].path
        start = (*above, self._children[above])
        self._children[above] += 1
        self.tree.add(start)
        trial = self._growing[start] = Trial(way, start)
        self._trials.append(trial)
        self._asks.append(Expand(start, self._seed(start), self.config.sampling, whole=True))

    def _drawing(self, trial: int) -> Draw:
        """How this trial draws; every draw has two random numbers of its own."""
        numbers = (unit_interval(self._seed((-1, trial, i))) for i in count())
        # rounded: no platform's power or cosine has a say in the choice
        return lambda posterior: significant(posterior.draw(next(numbers), next(numbers)))

    def _grow(self, trial: Trial, thoughts: Iterable[Thought]) -> None:
        """Take in a chain, a node per step, and ask for the scores it needs."""
        path = trial.start
        for thought in thoughts:
            node = self.tree.get(path) or self.tree.add(path)
            node.thought, node.fate = thought, Fate.EXPANDED
            trial.steps.append(path)
            path = (*path, 0)
        self.tree[trial.steps[-1]].fate = Fate.COMPLETED
        for path in trial.steps[:-1]:
            self._children[path] = 1
        every_step = self.config.agg_strategy != "last"
        scored = trial.steps if every_step else trial.steps[-1:]
        trial.unscored.update(scored)
        for path in scored:
            self._scoring[path] = trial
            self._asks.append(Score(path))

    def _tell_ready(self) -> None:
        """Back up what is ready in the order of the trials, and begin one for each."""
        while self._told < len(self._trials) and self._trials[self._told].ready:
            trial = self._trials[self._told]
            self._told += 1
            self._back_up(trial)
            if self._told == self.config.n:
                self._finish()
            elif len(self._trials) < self.config.n:
                self._begin()

    def _back_up(self, trial: Trial) -> None:
        end = trial.steps[-1]
        value = self.tree.path_score(end, self.config.agg_strategy)
        inner = takewhile(self._goes_on, trial.steps[:-1])
        back_up(trial.way, inner, value)

    def _goes_on(self, path: NodePath) -> bool:
        thought = self.tree[path].thought
        return thought is not None and thought.goes_on

    def _finish(self) -> None:
        """All chains come out."""
        how = self.config.agg_strategy
        ends = [trial.steps[-1] for trial in self._trials]
        ends.sort(key=lambda path: self.tree.rank(path, how))
        completions = (
            Completion(path, self.tree.text(path), self.tree.path_score(path, how)) for path in ends
        )
        self._result = SearchResult(tuple(completions), self.tree)
