"""Which search goes on from a few samples: thresholds of their mean score, as data."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tts.compat import Self

from .ab_mcts import AbMctsConfig
from .config import SearchConfig
from .mcts import MctsConfig
from .particle_filtering import ParticleConfig
from .rebase import RebaseConfig
from .search_and_learn import BeamSearchConfig, DvtsConfig, SampleSearchConfig

SEARCHES: dict[str, type[SearchConfig]] = {
    "weighted-best-of-n": SampleSearchConfig,
    "beam-search": BeamSearchConfig,
    "dvts": DvtsConfig,
    "rebase": RebaseConfig,
    "particle-filtering": ParticleConfig,
    "mcts": MctsConfig,
    "ab-mcts": AbMctsConfig,
}
"""What may be chosen, by the strategies' names: the searches whose vote is weighted."""


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
    """How problems are searched at one mean cost."""

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
        """The choice for samples of this mean score."""
        return next(
            choice for choice in self.choices if choice.below is None or mean_score < choice.below
        )


class Policy(_Data):
    """Budgets, each with its choices."""

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
