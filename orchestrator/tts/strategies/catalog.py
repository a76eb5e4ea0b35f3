"""The strategies by name: which search to run, its defaults, and how its answer is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from tts.build.errors import ConfigError
from tts.build.spec import explain
from tts.grading.votes import answer_form
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    NodePath,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Search,
)

Vote = Literal["best", "weighted", "majority"]
"""How one answer is chosen from n completions."""

Independent = Literal["chains", "subtrees"]
"""Parts of a search that know nothing of one another, each a search of its own with a smaller n:
its chains, or its subtrees of beam_width completions (those whose first path index // beam_width
is the same)."""

Config = BeamSearchConfig | DvtsConfig | ParticleConfig | RebaseConfig | SampleSearchConfig


@dataclass(frozen=True)
class Strategy:
    """`defaults` and `fixed` overlay the parameters of `config`; `fixed` ones cannot be changed.

    `independent` says of which parts a run consists, if parts of it are runs with a smaller n.
    """

    name: str
    summary: str
    config: type[Config]
    vote: Vote
    defaults: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    independent: Independent | None = None

    def configure(self, given: dict[str, Any], *, context: int) -> Config:
        """Validate parameters; raises ConfigError naming the parameter and what is allowed.

        `context` is the generator's max_seq_len in tokens, which `max_tokens` must not exceed.
        """
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
        default = min(self.config.model_fields["max_tokens"].default, context)
        values = {"max_tokens": default, **self.defaults, **given, **self.fixed}
        try:
            config = self.config.model_validate(values)
        except ValidationError as error:
            raise ConfigError(
                f"Parameters of strategy {self.name} are not valid:\n{explain(error)}"
            ) from error
        if config.max_tokens > context:
            raise ConfigError(
                f"max_tokens is {config.max_tokens}, but the generator's context holds {context} "
                "tokens, prompt and output together (generator.max_seq_len).",
                hint="Lower max_tokens, or raise generator.max_seq_len in the deployment.",
            )
        return config


_ALL = (
    Strategy(
        "cot",
        "one chain, greedy unless a temperature is given",
        SampleSearchConfig,
        "majority",
        defaults={"temperature": 0.0},
        fixed={"n": 1, "scored": False, "early_stop": False},
    ),
    Strategy(
        "self-consistency",
        "n chains, majority vote",
        SampleSearchConfig,
        "majority",
        fixed={"scored": False},
        independent="chains",
    ),
    Strategy(
        "best-of-n",
        "n chains, the answer of the best-scored one",
        SampleSearchConfig,
        "best",
        fixed={"scored": True, "early_stop": False},
        independent="chains",
    ),
    Strategy(
        "weighted-best-of-n",
        "n chains, equal answers add up their scores",
        SampleSearchConfig,
        "weighted",
        fixed={"scored": True},
        independent="chains",
    ),
    Strategy(
        "beam-search",
        "n beams step by step, the best n/beam_width kept, weighted vote",
        BeamSearchConfig,
        "weighted",
    ),
    Strategy(
        "dvts",
        "n/beam_width independent subtrees, greedy inside each, weighted vote",
        DvtsConfig,
        "weighted",
        independent="subtrees",
    ),
    Strategy(
        "rebase",
        "children shared out by a softmax of the scores, weighted vote",
        RebaseConfig,
        "weighted",
    ),
    Strategy(
        "particle-filtering",
        "n particles, drawn anew by score, weighted vote",
        ParticleConfig,
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
    return config.new_search(seed, answer_form)
