"""A strategy: a search with a name, its parameters, and how one answer is chosen."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import ValidationError

from tts.base.errors import ConfigError, did_you_mean
from tts.build.spec import explain
from tts.grading import boxed_answer, extract_answer
from tts.search import SearchConfig

Vote = Literal["best", "weighted", "majority"]
"""How one answer is chosen from n completions."""


@dataclass(frozen=True)
class Ballot:
    """How the answer of a completion is read, and which of equally good answers wins a vote."""

    answer_of: Callable[[str], str | None] = extract_answer
    as_listed: bool = False
    """Whether ties go to the answer that the search lists first; else to the first by path."""


def ballot_of(config: SearchConfig) -> Ballot:
    """How the completions of a search with these parameters vote, unless its strategy says else.

    An answer whose form is given stands in a box only.
    """
    has_form = config.answer_regex is not None or config.answer_schema is not None
    return Ballot(boxed_answer) if has_form else Ballot()


Independent = Literal["chains", "subtrees"]
"""Parts of a search that know nothing of one another, each a search of its own with a smaller n:
its chains, or its subtrees of beam_width completions (those whose first path index // beam_width
is the same)."""


@dataclass(frozen=True)
class Strategy:
    """A search, by its name and with its parameters, and how its answer is chosen."""

    name: str
    summary: str
    """One line that describes it in lists."""
    config: type[SearchConfig]
    """The parameters, which make the search (`SearchConfig.new_search`)."""
    vote: Vote
    defaults: dict[str, Any] = field(default_factory=dict)
    """Parameters whose default differs from that of `config`."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Parameters that cannot be changed."""
    independent: Independent | None = None
    """The parts of a run that are runs with a smaller n themselves; None: it has none."""
    ballot: Callable[[SearchConfig], Ballot] = ballot_of
    """How the completions of a search with these parameters vote."""

    def __post_init__(self) -> None:
        """Raises ConfigError for what no search can be made of."""
        if not (isinstance(self.config, type) and issubclass(self.config, SearchConfig)):
            raise ConfigError(
                f"The config of strategy {self.name} must be a class: a SearchConfig."
            )
        if inspect.isabstract(self.config):
            raise ConfigError(
                f"{self.config.__name__} lacks the method new_search(seed, answer_of)."
            )
        if self.vote not in get_args(Vote):
            raise ConfigError(
                f"The vote of strategy {self.name} is {self.vote!r:.100}; there are "
                f"{', '.join(get_args(Vote))}."
            )

    def allows(self, config: SearchConfig) -> bool:
        """Whether these may be its parameters."""
        return type(config) is self.config and all(
            getattr(config, name) == value for name, value in self.fixed.items()
        )

    def configure(self, values: dict[str, Any], *, context: int) -> SearchConfig:
        """Validate parameters; raises ConfigError naming the parameter and what is allowed.

        `context` is the generator's max_seq_len in tokens, which `max_tokens` must not exceed.
        """
        for name, value in values.items():
            if name in self.fixed and value != self.fixed[name]:
                raise ConfigError(
                    f"{name} is {value!r}, but strategy {self.name} has it fixed at "
                    f"{self.fixed[name]!r}."
                )
            if name not in self.config.model_fields:
                allowed = [n for n in self.config.model_fields if n not in self.fixed]
                raise ConfigError(
                    f"Strategy {self.name} has no parameter {name!r}; it has {', '.join(allowed)}.",
                    hint=did_you_mean(name, allowed).strip() or None,
                )
        default = min(self.config.model_fields["max_tokens"].default, context)
        values = {"max_tokens": default, **self.defaults, **values, **self.fixed}
        width, n = self.config.model_fields.get("beam_width"), values.get("n")
        if width and isinstance(n, int) and 0 < n < width.default:  # a group has no more beams
            values = {"beam_width": n, **values}
        try:
            config = self.config.model_validate(values)
        except ValidationError as error:
            raise ConfigError(
                f"Parameters of strategy {self.name} are not valid:\n{explain(error, self.config)}"
            ) from error
        require_context(config, context)
        return config


def require_context(config: SearchConfig, context: int) -> None:
    """Raise ConfigError if `max_tokens` exceeds the generator's max_seq_len, in tokens."""
    if config.max_tokens > context:
        raise ConfigError(
            f"max_tokens is {config.max_tokens}, but the generator's context holds {context} "
            "tokens, prompt and output together (generator.max_seq_len).",
            hint="Lower max_tokens, or raise generator.max_seq_len in the deployment.",
        )
