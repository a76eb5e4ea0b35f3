"""The interface of a search: ask, tell, result; and the parameters that strategies share.

A search is a state machine for one problem, without IO, clock or engine. `ask()` returns the work
it wants now, each piece once; `tell(result)` takes results in any order. The tree, the scores and
the result depend only on the configuration, the seeds and what the engines answer for a given node,
never on the order of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .ahead import Hints
from .allocation import Decision
from .cut_short import completions_so_far
from .seeds import SeedOf
from .thought import Aggregation, Completion, Generated, Sampling, Scored, Work
from .tree import Tree
from .votes import AnswerOf

Limit = Literal["tokens", "deadline"]
"""The limits that may cut a search short: its token budget, or its deadline."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search: its completions in rank order, and the tree that they end in.

    There are n, or fewer where the vote was decided before or a limit ended the search.
    """

    completions: tuple[Completion, ...]
    tree: Tree
    limit: Limit | None = None
    """The limit that cut the search short; None if it finished."""
    lost_tokens: int = 0
    """Tokens that were generated when the budget had no room for them: asked for, in no tree."""
    decision: Decision | None = None
    """The advice to `auto` and what came of it; None for other searches."""


class Search(ABC):
    """One problem's search. A strategy defines `ask`, `tell` and `result`; the rest is optional."""

    tree: Tree | None = None
    """All nodes so far, for whoever watches; None if the search shows none before its result."""
    hints: Hints = Hints()
    """Hints that never change the result: the scores that it can do without, the expansions that
    idle engines may begin before they are asked for."""

    @abstractmethod
    def ask(self) -> list[Work]:
        """The work wanted now and not asked before.

        It may name nodes below those that have been told, in any number and any order.
        """

    @abstractmethod
    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones change nothing.

        Raises ValueError for a score that is not a probability.
        """

    @abstractmethod
    def result(self) -> SearchResult | None:
        """The outcome, or None as long as further results could change it.

        It is called after every result, so it must be cheap: compute the outcome once.
        """

    def stop(self) -> SearchResult:
        """End the search now with its best result so far; it receives no further results.

        By default the completions are the chains of `tree` (see `completions_so_far`), by the
        scores of their last steps.
        """
        if result := self.result():
            return result
        tree = self.tree if self.tree is not None else Tree()
        return SearchResult(completions_so_far(tree), tree)

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.result() is not None


class SearchConfig(BaseModel, ABC):
    """Base of the strategies' parameters; names and defaults are search-and-learn's."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    TAKES_BUDGET: ClassVar[bool] = False
    """Whether a search goes on until its budget of tokens is spent, so that no n is fitted to it:
    `auto`, whose budget is the mean of a run, and searches that have no end of their own."""

    n: int = Field(default=16, ge=1, le=100_000)
    """Number of completions that come out."""
    temperature: float = Field(default=0.8, ge=0, le=10)
    """Temperature of sampling; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability from which tokens are drawn; 1 is all."""
    top_k: int = Field(default=0, ge=0, le=1024)
    """How many of the likeliest tokens are drawn from; 0 is all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Least probability of a token that is drawn, as a share of the likeliest one's."""
    max_tokens: int = Field(default=2048, ge=1)
    """Most tokens of one request: of a step, or of a whole chain."""
    thinking_budget: int | None = Field(default=None, ge=1)
    """Most tokens that the model thinks before its answer; unset: what the deployment says."""
    agg_strategy: Aggregation = "last"
    """How the scores of a path's steps become its own."""
    scores: Literal["calibrated", "raw"] = "calibrated"
    """Whether scores count as the probabilities that `verifier.calibration` of the deployment maps
    them to, if it has one, or as they are."""
    answer_regex: str | None = None
    """Regular expression that the boxed answer must match, if there is one."""
    answer_schema: str | None = None
    """JSON schema (as text) that the boxed answer must satisfy, if there is one."""

    def to_json(self) -> dict[str, Any]:
        """The parameters as run.json keeps them; those that most runs leave alone where given."""
        fields, rare = type(self).model_fields, ("thinking_budget", "scores", "top_k", "min_p")
        unset = {name for name in rare if getattr(self, name) == fields[name].default}
        return self.model_dump(mode="json", exclude=unset)

    @property
    def scores_steps(self) -> bool:
        """Whether it asks for scores of steps, and not of whole answers alone."""
        return True

    def is_last(self, iteration: int) -> bool:
        """Whether this is the last iteration; they count from 1. By default there is one."""
        return True

    def is_whole(self, iteration: int) -> bool:
        """Whether this iteration generates to the end of the sequence."""
        return True

    @property
    def sampling(self) -> Sampling:
        """How every request is sampled."""
        return Sampling(**{each.name: getattr(self, each.name) for each in fields(Sampling)})

    @abstractmethod
    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """A search of one problem with these parameters; each strategy's parameters define it.

        `seed` gives every sample its seed. `answer_of` reads the answer out of a completion, for
        strategies that stop once their vote is decided.
        """


class StepConfig(SearchConfig):
    """Parameters that the tree strategies share."""

    num_iterations: int = Field(default=40, ge=1)
    """Most iterations; a chain that has not ended by then ends there."""
    finish: Literal["depth", "eos"] = "depth"
    """Whether the last iteration is like any other, or generates to the end of the sequence."""

    def is_last(self, iteration: int) -> bool:
        """Whether this is the last iteration."""
        return iteration == self.num_iterations

    def is_whole(self, iteration: int) -> bool:
        """Whether this iteration generates to the end of the sequence."""
        return self.finish == "eos" and self.is_last(iteration)


class WidthConfig(StepConfig):
    """Parameters of the strategies that keep some of n candidates, and expand each to so many."""

    beam_width: int = Field(default=4, ge=1)
    """Children of a step that is kept; n/beam_width are kept, in all beams or subtrees."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n % self.beam_width:
            more = -(-self.n // self.beam_width) * self.beam_width
            raise ValueError(
                f"n is {self.n}, which is not a multiple of beam_width ({self.beam_width}), such "
                f"as {more}; or take --set beam_width={self.n}"
            )
        return self
