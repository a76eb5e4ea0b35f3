"""Compute-optimal choice: draw a few samples, then run the search that suits their scores.

    samples ──mean score──► choice ──► its search ──asks──┬─ the samples have it ──► told at once
                                                          └─ else ────────────────► asked for

The samples are reused: they are the first chains of the chosen search, and where a tree search asks
for a step that a sample has, it gets that step. (The distribution is the same: a chain generated in
one request consists of its steps in sequence.) Chains that the search did not take over are
`surplus`. The choice depends on locked scores alone, so the tree does not depend on timing.

After Snell et al., "Scaling LLM test-time compute optimally can be more effective than scaling
model parameters" (arXiv 2408.03314): difficulty as the verifier's mean score of samples, in bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tts.compat import Self

from .ab_mcts import AbMctsConfig
from .config import SearchConfig
from .early_stop import AnswerOf
from .mcts import MctsConfig
from .particle_filtering import ParticleConfig
from .protocol import Expand, Generated, Guess, Score, Scored, Search, SearchResult, Work
from .rebase import RebaseConfig
from .sampling import SampleSearch
from .search_and_learn import BeamSearchConfig, DvtsConfig, SampleSearchConfig
from .seeds import SeedOf
from .thought import Fate, NodePath, Thought, significant
from .tree import Tree, completions_so_far

SEARCHES: dict[str, type[SearchConfig]] = {
    "weighted-best-of-n": SampleSearchConfig,
    "beam-search": BeamSearchConfig,
    "dvts": DvtsConfig,
    "rebase": RebaseConfig,
    "particle-filtering": ParticleConfig,
    "mcts": MctsConfig,
    "ab-mcts": AbMctsConfig,
}
"""The searches to choose from, by the strategies' names: those whose vote is weighted."""


def common_parameters(like: SearchConfig, n: int) -> dict[str, Any]:
    """The parameters that all searches have in common, as in `like`, but with this n."""
    return {**{name: getattr(like, name) for name in SearchConfig.model_fields}, "n": n}


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(_Data):
    """The search for problems whose samples score below a threshold on average."""

    below: float | None = Field(default=None, gt=0, le=1)
    """Upper end (excluded) of the mean scores for which this is chosen; None: no upper end."""
    strategy: str
    n: int = Field(ge=1)

    def config(self, like: SearchConfig) -> SearchConfig:
        """Parameters of the chosen search, with sampling and aggregation like those of `like`."""
        return SEARCHES[self.strategy].model_validate(common_parameters(like, self.n))

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        if self.strategy not in SEARCHES:
            raise ValueError(f"{self.strategy!r} cannot be chosen; there are {', '.join(SEARCHES)}")
        # refuses an n that the search does not split evenly
        SEARCHES[self.strategy].model_validate({"n": self.n})
        return self


class Budget(_Data):
    """How problems are searched at one mean cost per problem."""

    n: int = Field(ge=1)
    """The mean cost of a problem, in whole chains."""
    samples: int = Field(ge=1)
    """Number of chains from which the difficulty is estimated."""
    choices: tuple[Choice, ...] = Field(min_length=1)
    """The choices, from the hardest problems to the easiest."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        *thresholds, last = [choice.below for choice in self.choices]
        known = [threshold for threshold in thresholds if threshold is not None]
        if last is not None or len(known) < len(thresholds) or known != sorted(set(known)):
            raise ValueError(
                "the thresholds `below` must increase from choice to choice, and the last choice "
                "has none"
            )
        for choice in self.choices:
            if choice.n < self.samples:
                raise ValueError(
                    f"{choice.strategy} with n={choice.n} has fewer completions than there are "
                    f"samples ({self.samples})"
                )
        return self

    def choose(self, mean_score: float) -> Choice:
        """The choice for samples with this mean score."""
        return next(
            choice for choice in self.choices if choice.below is None or mean_score < choice.below
        )


class Policy(_Data):
    """The choices for each budget."""

    made_from: str = ""
    """The runs that it was made from, for whoever reads it."""
    budgets: tuple[Budget, ...] = Field(min_length=1)

    def budget(self, n: int) -> Budget:
        """The largest budget of at most `n` chains a problem; ValueError if all are larger."""
        within = [budget for budget in self.budgets if budget.n <= n]
        if not within:
            least = min(budget.n for budget in self.budgets)
            raise ValueError(f"n is {n}, but the smallest budget of the policy is {least}")
        return max(within, key=lambda budget: budget.n)


Choose = Callable[[float], SearchConfig]
"""The search for a problem whose samples have this mean score."""


class AutoSearch(Search):
    """Draws samples, chooses a search by their scores, and continues as that search."""

    tree: Tree

    def __init__(
        self, samples: SampleSearchConfig, choose: Choose, seed: SeedOf, answer_of: AnswerOf
    ) -> None:
        """`samples` are scored; `seed` maps a node to the seed of its sample, in every search."""
        self._choose = choose
        self._seed = seed
        self._answer_of = answer_of
        self._config: SearchConfig = samples
        """Parameters of the search that goes on now."""
        self._search: Search = SampleSearch(samples, seed)
        assert self._search.tree is not None
        self.tree = self._samples = self._search.tree
        self._steps: dict[NodePath, tuple[Thought, ...]] = {}
        """The samples' steps, once there is a choice."""
        self._asks = self._search.ask()
        self._unwanted: list[NodePath] = []
        self._result: SearchResult | None = None

    @property
    def chosen(self) -> SearchConfig | None:
        """The parameters of the search that was chosen; None before that."""
        return self._config if self._steps else None

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if self._result:
            return
        self._search.tell(result)
        if not self._steps and (samples := self._search.result()):
            self._go_on(samples)
        self._take_asks()
        if self._steps and (found := self._search.result()):
            self._add_unused_samples()
            self._end(found)

    def result(self) -> SearchResult | None:
        """The result of the search that was chosen."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search; the samples count like the chains that the chosen search has completed."""
        if self._result is None:
            self._add_unused_samples()
            found = completions_so_far(self.tree, self._config.agg_strategy, self._config.n)
            self._end(SearchResult(found, self.tree))
        assert self._result is not None
        return self._result

    def unwanted(self) -> list[NodePath]:
        """See Search."""
        nodes, self._unwanted = self._unwanted, []
        return nodes

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Search; the samples' steps are answered already."""
        return self._search.foresee({**answered, **self._steps}) if not self._result else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Search."""
        return self._search.expandable() if not self._result else ()

    def _go_on(self, samples: SearchResult) -> None:
        """Choose the search by the scores of the samples."""
        scores = [done.score for done in samples.completions if done.score is not None]
        self._config = self._choose(significant(math.fsum(scores) / len(scores)))
        self._search = self._config.new_search(self._seed, self._answer_of)
        assert self._search.tree is not None
        self.tree = self._search.tree
        self._steps = {node.path: (node.thought,) for node in self._samples if node.thought}

    def _take_asks(self) -> None:
        """Collect what the search wants now, and tell it at once what the samples hold of that."""
        while asks := self._search.ask():
            for work in asks:
                if known := self._known(work):
                    self._search.tell(known)
                else:
                    self._asks.append(work)
        for node in self._search.unwanted():
            asks = [w for w in self._asks if isinstance(w, Expand) or w.node != node]
            if len(asks) == len(self._asks):
                self._unwanted.append(node)  # it has been handed out
            self._asks = asks

    def _known(self, work: Work) -> Generated | Scored | None:
        """The answer that the samples hold; what they take from a node is its child 0."""
        path = work.node
        if path not in self._steps:
            return None
        if isinstance(work, Score):
            score = self._samples[path].score
            return None if score is None else Scored(path, score)
        thoughts = list(self._steps[path])
        while work.whole and (path := (*path, 0)) in self._steps:
            thoughts += self._steps[path]
        return Generated(work.node, tuple(thoughts))

    def _add_unused_samples(self) -> None:
        """Add the samples that the chosen search did not take over: they were paid for."""
        for sample in self._samples:
            if sample.path not in self.tree:
                node = self.tree.add(sample.path)
                node.thought, node.score = sample.thought, sample.score
                ends = sample.fate is Fate.COMPLETED
                node.fate = Fate.SURPLUS if ends else sample.fate

    def _end(self, result: SearchResult) -> None:
        self._result = result
        self._asks.clear()
        self._unwanted.clear()
