"""What the parameters of every strategy have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from .types import Aggregation, Sampling


class SearchConfig(BaseModel):
    """Base of the strategies' parameters; names and defaults are search-and-learn's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int = Field(16, ge=1)
    """Completions that come out."""
    temperature: float = Field(0.8, ge=0, le=10)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(2048, ge=1)
    """Tokens of one request at most: a step, or a whole chain."""
    agg_strategy: Aggregation = "last"
    """How the scores of a path's steps become its own."""

    @property
    def sampling(self) -> Sampling:
        """How every request is sampled."""
        return Sampling(self.temperature, self.top_p, self.max_tokens)


def check_width(n: int, beam_width: int) -> None:
    """Raise ValueError unless n beams split into groups of `beam_width`."""
    if n % beam_width:
        raise ValueError(f"n is {n}, which is not a multiple of beam_width ({beam_width})")
