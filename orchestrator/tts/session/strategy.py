"""The search of a name, parameter object or function, and checks of a user's own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType
from typing import Any, NoReturn

from tts.base.errors import ConfigError, FunctionError, TtsError
from tts.build.spec import Deployment
from tts.endpoints.functions import described, name_of, users_code
from tts.grading.votes import answer_form
from tts.problem import Problem
from tts.search import (
    Advice,
    AnswerOf,
    AutoConfig,
    AutoSearch,
    Calibration,
    Completion,
    Expand,
    Generated,
    Guess,
    Hints,
    NodePath,
    SampleSearchConfig,
    Sampling,
    Score,
    Scored,
    Search,
    SearchConfig,
    SearchResult,
    SeedOf,
    Thought,
    Tree,
    Work,
    node_seed,
)
from tts.strategies.catalog import STRATEGIES, find_strategy, new_search, strategy_of
from tts.strategies.parameters import configure, require_answer_form
from tts.strategies.strategy import Ballot, Strategy, Vote, require_context

MAX_EXPANSIONS = 200_000
"""Steps that a search of the user's own may ask for: one that never ends would take all memory."""
_HINT = "docs/reference/strategies.md says what a search asks for and returns."


class _Checks:
    """Calls to an object of the user's, whose values are checked."""

    _inner: Any
    _name: str

    def _call(self, method: str, kinds: type | tuple[type, ...], what: str) -> Any:
        """The value of a method without parameters, which must be of these types: `what`."""
        with users_code(f"{self._name}.{method}"):
            value = getattr(self._inner, method)()
        return self._expect(method, value, kinds, what)

    def _attribute(self, name: str, kinds: type | tuple[type, ...], what: str) -> Any:
        with users_code(f"{self._name}.{name}"):
            value = getattr(self._inner, name)
        if not isinstance(value, kinds):
            self._refuse(name, f"is {described(value)}; it must be {what}")
        return value

    def _expect(self, method: str, value: Any, kinds: type | tuple[type, ...], what: str) -> Any:
        if not isinstance(value, kinds):
            self._refuse(method, f"gave {described(value)}; it must return {what}")
        return value

    def _refuse(self, method: str, what: str) -> NoReturn:
        name = f"{self._name}.{method}" if method else self._name
        raise FunctionError(f"{name} {what}.", hint=_HINT)

    def _check(self, method: str, work: object, nodes: Container[NodePath]) -> None:
        """Refuse what is no work, or not on a node that can be worked on."""
        if not isinstance(work, Expand | Score):
            self._refuse(method, f"gave {described(work)} among its work; that is Expand or Score")
        node = work.node
        if not isinstance(node, tuple) or not node or not all(type(each) is int for each in node):
            self._refuse(method, f"asked for node {described(node)}; a node is a tuple of indices")
        parent = node[:-1] if isinstance(work, Expand) or work.own_turn else node
        if parent not in nodes:
            self._refuse(method, f"asked for node {node} before node {parent} was told")
        if isinstance(work, Expand):
            if type(work.seed) is not int or not 0 <= work.seed < 2**63:
                rule = "it is a whole number below 2**63, such as seed(node)"
                self._refuse(method, f"asked with the seed {described(work.seed)}; {rule}")
            if not isinstance(work.sampling, Sampling):
                what = described(work.sampling)
                self._refuse(method, f"asked with the sampling {what}, no Sampling")


class OwnSearch(_Checks, Search):
    """The user's search, whose mistakes and exceptions become FunctionErrors."""

    def __init__(self, make: Callable[[], object], maker: object) -> None:
        """`make` calls the user's function or class, which is `maker`."""
        self._name = name_of(maker)
        self.failure: TtsError | None = None
        """The error of a guess, which is raised when the search is asked next."""
        self._work: set[tuple[type[Work], NodePath]] = set()
        self.nodes: set[NodePath] = {()}
        """The nodes that may be expanded and scored."""
        with users_code(self._name):
            inner: Any = make()
        self._inner = self._expect("", inner, Search, "a tts.search.Search")
        self._name = name_of(type(inner))
        self._read_tree()
        self.hints = OwnHints(self, self._attribute("hints", Hints, "a tts.search.Hints"))

    def ask(self) -> list[Work]:
        """See Search; each piece of work is checked."""
        if self.failure:
            raise self.failure
        asks: list[Work] = self._call("ask", (list, tuple), "a list of Expand, Score")
        for work in asks:
            self._check("ask", work, self.nodes)
            key = type(work), work.node
            if key in self._work:
                what = "be expanded" if isinstance(work, Expand) else "be scored"
                self._refuse("ask", f"asked for node {work.node} to {what} twice")
            self._work.add(key)
            if isinstance(work, Score) and work.own_turn:
                self.nodes.add(work.node)
        if len(self._work) > MAX_EXPANSIONS:
            self._refuse("ask", f"asked for {MAX_EXPANSIONS:,} steps and goes on; it must end")
        return list(asks)

    def tell(self, result: Generated | Scored) -> None:
        """See Search."""
        if isinstance(result, Generated):
            self.nodes.update(_chain(result.node, result.thoughts))
        with users_code(f"{self._name}.tell"):
            self._inner.tell(result)
        self._read_tree()

    def result(self) -> SearchResult | None:
        """See Search."""
        result = self._call("result", (SearchResult, NoneType), "a SearchResult")
        return None if result is None else self._checked("result", result)

    def stop(self) -> SearchResult:
        """See Search."""
        return self._checked("stop", self._call("stop", SearchResult, "a SearchResult"))

    def _read_tree(self) -> None:
        self.tree = self._attribute("tree", (Tree, NoneType), "a tts.search.Tree, or None")

    def _checked(self, method: str, result: SearchResult) -> SearchResult:
        for each in result.completions:
            if not isinstance(each, Completion) or not _is_score(each.score):
                self._refuse(method, f"has {described(each)} among its completions")
            ends = [each.node[:depth] for depth in range(1, len(each.node) + 1)]
            if not ends or not all((node := result.tree.get(end)) and node.thought for end in ends):
                self._refuse(
                    method, f"has a completion at node {each.node}, whose chain is not in its tree"
                )
        return replace(result, completions=tuple(result.completions))


class OwnHints(_Checks, Hints):
    """The hints of the user's search, checked."""

    def __init__(self, search: OwnSearch, inner: Hints) -> None:
        self._search, self._inner, self._name = search, inner, name_of(type(inner))

    def needs(self) -> dict[NodePath, bool]:
        """See Hints."""
        needs: dict[NodePath, bool] = self._call("needs", dict, "a dict of nodes")
        return needs

    def guess(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Hints; an error in it is raised when the search is asked next."""
        chains = (_chain(path, thoughts) for path, thoughts in answered.items())
        nodes = self._search.nodes.union(*chains)
        try:
            with users_code(f"{self._name}.guess"):
                for guess in self._inner.guess(answered):
                    self._expect("guess", guess, Guess, "an iterator of Guess objects")
                    self._check("guess", guess.work, nodes)
                    yield guess
        except TtsError as error:
            self._search.failure = error

    def expandable(self) -> Container[NodePath]:
        """See Hints."""
        nodes: Container[NodePath] = self._call("expandable", Container, "a set of nodes")
        return nodes


def _chain(first: NodePath, thoughts: Sequence[Thought]) -> Iterator[NodePath]:
    """The nodes of thoughts that were generated together."""
    return (first + (0,) * depth for depth in range(len(thoughts)))


def _is_score(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


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
        """A new search; `form` reads answers, to stop early; `consecutive`: see node_seed."""

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
