"""The parameters that strategies share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .protocol import Search
from .seeds import SeedOf
from .thought import Aggregation, Sampling
from .votes import AnswerOf


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
