"""A search of the user's own: what is wrong in its code or its values becomes a FunctionError."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, NoReturn

from tts.base.errors import FunctionError, TtsError
from tts.endpoints.functions import described, name_of, users_code
from tts.search import (
    Completion,
    Expand,
    Generated,
    Guess,
    Hints,
    NodePath,
    Sampling,
    Score,
    Scored,
    Search,
    SearchResult,
    Thought,
    Tree,
    Work,
)

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
    """The user's search, with checks of what it asks for and returns.

    Its methods raise FunctionError: for an exception of the user's code, or a wrong value.
    """

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
