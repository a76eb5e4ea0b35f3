"""The parameters that strategies share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    max_tokens: int = Field(default=2048, ge=1)
    """Most tokens of one request: of a step, or of a whole chain."""
    agg_strategy: Aggregation = "last"
    """How the scores of a path's steps become its own."""
    answer_regex: str | None = None
    """Regular expression that the boxed answer must match, if there is one."""
    answer_schema: str | None = None
    """JSON schema (as text) that the boxed answer must satisfy, if there is one."""

    def to_json(self) -> dict[str, Any]:
        """The parameters as run.json keeps them."""
        return self.model_dump(mode="json")

    @property
    def sampling(self) -> Sampling:
        """How every request is sampled."""
        return Sampling(
            self.temperature, self.top_p, self.max_tokens, self.answer_regex, self.answer_schema
        )

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


def check_width(n: int, beam_width: int) -> None:
    """Raise ValueError unless n beams split into groups of `beam_width`."""
    if n % beam_width:
        raise ValueError(f"n is {n}, which is not a multiple of beam_width ({beam_width})")
