"""The strategies by name: which search to run, its defaults, and how its answer is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from tts.build.errors import ConfigError
from tts.build.spec import explain

from .search import (
    BeamSearch,
    BeamSearchConfig,
    NodePath,
    SampleSearch,
    SampleSearchConfig,
    Search,
)

Vote = Literal["best", "weighted", "majority"]
"""How one answer is chosen from n completions."""

Config = BeamSearchConfig | SampleSearchConfig


@dataclass(frozen=True)
class Strategy:
    """`defaults` and `fixed` overlay the parameters of `config`; `fixed` ones cannot be changed."""

    name: str
    summary: str
    config: type[Config]
    vote: Vote
    defaults: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)

    def configure(self, given: dict[str, Any]) -> Config:
        """Validate parameters; raises ConfigError naming the parameter and what is allowed."""
        for name, value in given.items():
            if name in self.fixed and value != self.fixed[name]:
                raise ConfigError(
                    f"{name} is {value!r}, but strategy {self.name} has it fixed at "
                    f"{self.fixed[name]!r}."
                )
            if name not in self.config.model_fields:
                allowed = ", ".join(n for n in self.config.model_fields if n not in self.fixed)
                raise ConfigError(
                    f"Strategy {self.name} has no parameter {name!r}; it has {allowed}."
                )
        try:
            return self.config.model_validate({**self.defaults, **given, **self.fixed})
        except ValidationError as error:
            raise ConfigError(
                f"Parameters of strategy {self.name} are not valid:\n{explain(error)}"
            ) from error


_ALL = (
    Strategy(
        "cot",
        "one chain, greedy unless a temperature is given",
        SampleSearchConfig,
        "majority",
        defaults={"temperature": 0.0},
        fixed={"n": 1, "scored": False},
    ),
    Strategy(
        "self-consistency",
        "n chains, majority vote",
        SampleSearchConfig,
        "majority",
        fixed={"scored": False},
    ),
    Strategy(
        "best-of-n",
        "n chains, the answer of the best-scored one",
        SampleSearchConfig,
        "best",
        fixed={"scored": True},
    ),
    Strategy(
        "weighted-best-of-n",
        "n chains, equal answers add up their scores",
        SampleSearchConfig,
        "weighted",
        fixed={"scored": True},
    ),
    Strategy(
        "beam-search",
        "n beams step by step, the best n/beam_width kept, weighted vote",
        BeamSearchConfig,
        "weighted",
    ),
)
STRATEGIES = {strategy.name: strategy for strategy in _ALL}


def find_strategy(name: str) -> Strategy:
    """The strategy of that name; raises ConfigError listing the names there are."""
    if name not in STRATEGIES:
        raise ConfigError(
            f"There is no strategy {name!r}.", hint=f"Strategies: {', '.join(STRATEGIES)}."
        )
    return STRATEGIES[name]


def new_search(config: Config, seed: Callable[[NodePath], int]) -> Search:
    """A fresh search of one problem."""
    if isinstance(config, BeamSearchConfig):
        return BeamSearch(config, seed)
    return SampleSearch(config, seed)
