"""The search that a program asks for: by name, parameter object or function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tts.base.errors import ConfigError
from tts.build.spec import Deployment
from tts.endpoints.functions import name_of, users_code
from tts.grading.votes import answer_form
from tts.problem import Problem
from tts.search import (
    Advice,
    AnswerOf,
    AutoConfig,
    AutoSearch,
    Calibration,
    NodePath,
    SampleSearchConfig,
    Search,
    SearchConfig,
    SeedOf,
    node_seed,
)
from tts.strategies.catalog import STRATEGIES, find_strategy, new_search, strategy_of
from tts.strategies.parameters import configure, require_answer_form
from tts.strategies.strategy import Ballot, Strategy, Vote, require_context

from .own_search import OwnSearch

SearchFactory = Callable[[Problem, SeedOf], Search]
"""A search of the program's own for one problem. All randomness in it must come from the seeds."""
StrategyLike = str | SearchConfig | SearchFactory | Strategy | type[SearchConfig]


@dataclass(frozen=True)
class ChosenStrategy:
    """The strategy of a run. Either `config` or `factory` is set."""

    name: str
    vote: Vote
    """How the answer is chosen from the completions."""
    config: SearchConfig | None
    factory: SearchFactory | None = None
    ballot: Ballot = field(default_factory=Ballot)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters in run.json; for a function, the number of completions is unknown."""
        return self.config.to_json() if self.config else {"n": None}

    @property
    def function(self) -> str | None:
        """The program's own function or class by name, if the strategy is not in the catalog."""
        own = self.factory or type(self.config)
        return name_of(own) if self.factory or self.name == name_of(own) else None

    @property
    def takes_advice(self) -> bool:
        """Whether its searches are advised by the problems before them."""
        return isinstance(self.config, AutoConfig)

    @property
    def weighs_scores(self) -> bool:
        """Whether scores are calibrated for its searches: not for a function's, nor where the
        parameters say so, or nothing is scored.
        """
        config = self.config
        unscored = isinstance(config, SampleSearchConfig) and not config.scored
        return config is not None and config.scores == "calibrated" and not unscored

    def new_search(
        self,
        problem: Problem,
        run_seed: int,
        form: AnswerOf = answer_form,
        advice: Advice | None = None,
        calibration: Calibration | None = None,
        *,
        consecutive: bool = False,
    ) -> Search:
        """A new search; `form` gives the form of an answer to searches that stop early.

        `consecutive`: see node_seed.
        """

        def seed(node: NodePath) -> int:
            return node_seed(run_seed, problem.id, node, consecutive=consecutive)

        if self.factory is not None:
            return OwnSearch(partial(self.factory, problem, seed), self.factory)
        assert self.config is not None
        if advice and isinstance(self.config, AutoConfig):
            return AutoSearch(self.config, advice, seed, form, calibration)
        if is_own(type(self.config)):
            factory = partial(self.config.new_search, seed, form)
            search: Search = OwnSearch(factory, self.config.new_search)
        else:
            search = new_search(self.config, seed, form)
        if search.tree is not None:
            search.tree.calibration = calibration
        return search


def choose(
    strategy: StrategyLike, deployment: Deployment, parameters: dict[str, Any]
) -> ChosenStrategy:
    """The strategy on a deployment, with its parameters; raises ConfigError.

    Answers of a function's searches are chosen by weighted vote, or by majority without scores.
    """
    if isinstance(strategy, str):
        return _configured(find_strategy(strategy), deployment, parameters)
    if isinstance(strategy, type) and issubclass(strategy, SearchConfig):
        strategy = Strategy(name_of(strategy), "", strategy, "weighted")
    if isinstance(strategy, Strategy):
        if strategy.name in STRATEGIES:
            raise ConfigError(f"{strategy.name} is the name of a built-in strategy.")
        return _configured(strategy, deployment, parameters)
    if isinstance(strategy, type) and issubclass(strategy, Search) and _takes_config(strategy):
        raise ConfigError(
            f"{name_of(strategy)} is made with a config, not with (problem, seed).",
            hint="Give its parameters instead: the SearchConfig whose new_search makes it, or "
            "a Strategy (docs/reference/strategies.md).",
        )
    if parameters:
        raise ConfigError(
            f"Parameters ({', '.join(parameters)}) go with the name of a strategy.",
            hint="Put them into the config object, or into the function.",
        )
    if isinstance(strategy, SearchConfig):
        config = _fitted(strategy, deployment.generator.max_seq_len)
        require_answer_form(config, deployment)
        try:
            match = strategy_of(config)
        except ConfigError:  # parameters of the program's own
            return ChosenStrategy(name_of(type(config)), "weighted", config)
        return ChosenStrategy(match.name, match.vote, config, ballot=match.ballot(config))
    if callable(strategy):
        factory: Any = strategy
        _require_factory(factory)
        return ChosenStrategy(name_of(strategy), "weighted", None, factory)
    raise ConfigError(
        f"The strategy is {strategy!r:.200}.",
        hint="Give a name, a config object such as BeamSearchConfig(n=16), or a function of "
        "(problem, seed) that returns a Search.",
    )


def _configured(
    strategy: Strategy, deployment: Deployment, parameters: dict[str, Any]
) -> ChosenStrategy:
    """A strategy with its parameters; raises FunctionError where code of the user's fails."""
    is_users = is_own(strategy.config)
    with users_code(f"strategy {strategy.name}") if is_users else nullcontext():
        config = configure(strategy, deployment, parameters)
        ballot = strategy.ballot(config)
    return ChosenStrategy(strategy.name, strategy.vote, config, ballot=ballot)


def is_own(function: object) -> bool:
    """Whether a function or class is the user's, or of a plug-in, rather than of tts."""
    return not name_of(function).startswith("tts.")


def _require_factory(function: Callable[..., Any]) -> None:
    """Raise ConfigError for a function or class that cannot be called with (problem, seed)."""
    if missing := sorted(getattr(function, "__abstractmethods__", ())):
        raise ConfigError(f"{name_of(function)} lacks what every Search has: {', '.join(missing)}.")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(f"{name_of(function)} must take (problem, seed): {error}.") from error
    except ValueError:  # some of C have no signature
        return


def _takes_config(search: type[Search]) -> bool:
    first = next(iter(inspect.signature(search).parameters), "")
    return first == "config"


def _fitted(config: SearchConfig, context: int) -> SearchConfig:
    """Parameters with a default of max_tokens that fits the generator's context."""
    if config.max_tokens > context and "max_tokens" not in config.model_fields_set:
        return config.model_copy(update={"max_tokens": context})
    require_context(config, context)
    return config
