"""The strategies by name: the built-in ones, and those of plug-ins.

A built-in strategy is a module of `tts.search`, an entry here, and its name in `names`. One of
another package is an entry point of the group `tts.strategies` with the strategy's name, which
refers to a `Strategy` or to a function that returns one.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from itertools import chain

from tts.base.errors import ConfigError, did_you_mean
from tts.grading import votes
from tts.plugins import PluginGroup, package_of
from tts.search import (
    AdaptiveVoteConfig,
    AnswerOf,
    AutoConfig,
    BeamSearchConfig,
    ConfidenceVoteConfig,
    DvtsConfig,
    MctsConfig,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Search,
    SearchConfig,
    SeedOf,
)

from .strategy import Strategy

PLUGINS = PluginGroup("tts.strategies", "strategy")

_ALL = (
    Strategy(
        "greedy",
        "one chain, the likeliest token at each place unless a temperature is given",
        SampleSearchConfig,
        "majority",
        defaults={"temperature": 0.0},
        fixed={"n": 1, "scored": False},
    ),
    Strategy(
        "majority-vote",
        "n chains, the answer that most of them give",
        SampleSearchConfig,
        "majority",
        fixed={"scored": False},
        independent="chains",
    ),
    Strategy(
        "adaptive-vote",
        "up to n chains, in rounds until one answer is probably the majority's",
        AdaptiveVoteConfig,
        "majority",
        fixed={"scored": False},
    ),
    Strategy(
        "weighted-adaptive-vote",
        "as adaptive-vote, but equal answers add up their chains' scores",
        AdaptiveVoteConfig,
        "weighted",
        fixed={"scored": True},
    ),
    Strategy(
        "confidence-vote",
        "n chains, weighed by the generator's own confidence; weak ones are ended early",
        ConfidenceVoteConfig,
        "weighted",
        fixed={"scored": False},
    ),
    Strategy(
        "best-of-n",
        "n chains, the answer of the best-scored one",
        SampleSearchConfig,
        "best",
        fixed={"scored": True},
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
    Strategy(
        "mcts",
        "n simulations by PUCT, each to the end of a chain, weighted vote",
        MctsConfig,
        "weighted",
    ),
    Strategy(
        "auto",
        "the one to take: given a budget, it decides for itself how to search",
        AutoConfig,
        "weighted",
    ),
)
STRATEGIES = {strategy.name: strategy for strategy in _ALL}
"""The built-in strategies by name."""


def strategy_names() -> list[str]:
    """The names of all strategies, the built-in ones first; no plug-in is loaded."""
    return list(dict.fromkeys([*STRATEGIES, *PLUGINS.names()]))


def find_strategy(name: str) -> Strategy:
    """The strategy of that name, built in or of a plug-in.

    Raises ConfigError: nobody has the name, several have it, or its plug-in cannot be loaded.
    """
    plugin = PLUGINS.find(name)
    if plugin is None:
        if name in STRATEGIES:
            return STRATEGIES[name]
        raise ConfigError(
            f"There is no strategy {name!r}.",
            hint=did_you_mean(name, strategy_names())
            + f"Strategies: {', '.join(strategy_names())}.",
        )
    if name in STRATEGIES:
        raise ConfigError(
            f"{PLUGINS.describe(plugin)} has the name of a built-in strategy.",
            hint=f"Give it another name, or uninstall {package_of(plugin)}.",
        )
    return _load_plugin(plugin)


def all_strategies() -> dict[str, Strategy]:
    """Every strategy by its name; raises ConfigError as `find_strategy`."""
    return {name: find_strategy(name) for name in strategy_names()}


def known_strategy(name: str) -> Strategy | None:
    """The strategy that a log names, or None if it cannot be found or loaded any more."""
    try:
        return find_strategy(name)
    except ConfigError:
        return None


def strategy_of(config: SearchConfig) -> Strategy:
    """The first strategy that may have these parameters; raises ConfigError if none may.

    Where several share a type of parameters, the fixed ones tell them apart.
    """
    plugins = (known_strategy(name) for name in PLUGINS.names() if name not in STRATEGIES)
    for strategy in chain(STRATEGIES.values(), plugins):
        if strategy and strategy.allows(config):
            return strategy
    raise ConfigError(
        f"No strategy has parameters of the type {type(config).__name__}.",
        hint=f"Strategies: {', '.join(strategy_names())}.",
    )


def new_search(
    config: SearchConfig, seed: SeedOf, answer_form: AnswerOf = votes.answer_form
) -> Search:
    """A fresh search of one problem.

    `seed` gives the sample of a node its seed; `answer_form` reads the answer of a completion.
    """
    return config.new_search(seed, answer_form)


def _load_plugin(plugin: EntryPoint) -> Strategy:
    """Import a plug-in; raises ConfigError if that fails or gives no strategy of its name."""
    loaded = PLUGINS.load(plugin)
    try:
        strategy = loaded() if callable(loaded) else loaded
    except Exception as error:
        raise PLUGINS.broken(plugin, error) from error
    if isinstance(strategy, Strategy) and strategy.name == plugin.name:
        return strategy
    other = f"one named {strategy.name!r}" if isinstance(strategy, Strategy) else repr(strategy)
    raise ConfigError(
        f"{PLUGINS.describe(plugin)} must give a Strategy named {plugin.name!r}, not {other:.60}.",
        hint=f"Fix or uninstall {package_of(plugin)}.",
    )
