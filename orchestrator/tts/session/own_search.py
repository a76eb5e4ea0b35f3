"""A search of the user's own: what is wrong in its code becomes an error naming the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from tts.base.errors import FunctionError, TtsError
from tts.endpoints.functions import described, failed, name_of, place_of
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


class _Guard:
    """Calls the methods of a user's object; what fails or is wrong becomes FunctionError."""

    _inner: Any
    _name: str

    def _call(self, method: str, *arguments: object) -> Any:
        return self._guarded(method, lambda: getattr(self._inner, method)(*arguments))

    def _guarded(self, method: str, call: Callable[[], Any]) -> Any:
        """What the user's code returns; its exceptions become FunctionError."""
        try:
            return call()
        except TtsError:
            raise
        except BaseException as error:  # sys.exit() and Ctrl-C, too
            raise failed(self._named(method), error, self._of(method)) from error

    def _refuse(self, method: str, what: str) -> NoReturn:
        where = place_of(self._of(method))
        raise FunctionError(f"{self._named(method)} {what}{where}.", hint=_HINT)

    def _named(self, method: str) -> str:
        return f"{self._name}.{method}" if method else self._name

    def _of(self, method: str) -> object:
        """The function behind a method's name, as far as there is one."""
        return getattr(type(self._inner), method, type(self._inner)) if method else self._inner

    def _check(self, method: str, work: object, told: Container[NodePath]) -> None:
        """Refuse what is no work, or not on a node that can be worked on."""
        if not isinstance(work, Expand | Score):
            self._refuse(method, f"gave {described(work)} among its work; that is Expand or Score")
        node = work.node
        if not isinstance(node, tuple) or not node or not all(type(each) is int for each in node):
            self._refuse(method, f"asked for node {described(node)}; a node is a tuple of indices")
        needed = node[:-1] if isinstance(work, Expand) or work.own_turn else node
        if needed not in told:
            self._refuse(method, f"asked for node {node} before node {needed} was told")
        if isinstance(work, Expand):
            if not _is_index(work.seed) or work.seed >= 2**63:
                wanted = "it is a whole number below 2**63, such as seed(node)"
                self._refuse(method, f"asked with the seed {described(work.seed)}; {wanted}")
            if not isinstance(work.sampling, Sampling):
                self._refuse(
                    method, f"asked with the sampling {described(work.sampling)}, no Sampling"
                )


class OwnSearch(_Guard, Search):
    """Hands everything on to the user's search, and checks what that asks for and returns.

    Its methods raise FunctionError: for an exception of the user's code, or a wrong value.
    """

    def __init__(self, make: Callable[[], object], maker: object) -> None:
        """`make` calls the user's function or class, which is `maker`."""
        self._name = name_of(maker)
        self.failure: TtsError | None = None
        """What failed where nobody could be told."""
        self._asked: set[tuple[type[Work], NodePath]] = set()
        self.told: set[NodePath] = {()}
        """The nodes that may be expanded and scored."""
        self._inner: Any = maker
        made = self._guarded("", make)
        if not isinstance(made, Search):
            self._refuse("", f"gave {described(made)}; it must return a tts.search.Search")
        self._inner, self._name = made, name_of(type(made))
        self._show_tree()
        hints = self._guarded("hints", lambda: made.hints)
        if not isinstance(hints, Hints):
            self._refuse("hints", f"is {described(hints)}; it must be a tts.search.Hints")
        self.hints = OwnHints(self, hints)

    def ask(self) -> list[Work]:
        """See Search; each piece of work is checked."""
        if self.failure:
            raise self.failure
        asks = self._call("ask")
        if not isinstance(asks, list | tuple):
            self._refuse("ask", f"gave {described(asks)}; it must return a list of Expand, Score")
        for work in asks:
            self._check("ask", work, self.told)
            key = type(work), work.node
            if key in self._asked:
                what = "be expanded" if isinstance(work, Expand) else "be scored"
                self._refuse("ask", f"asked for node {work.node} to {what} twice")
            self._asked.add(key)
            if isinstance(work, Score) and work.own_turn:
                self.told.add(work.node)
        if len(self._asked) > MAX_EXPANSIONS:
            self._refuse("ask", f"asked for {MAX_EXPANSIONS:,} steps and goes on; it must end")
        return list(asks)

    def tell(self, result: Generated | Scored) -> None:
        """See Search."""
        if isinstance(result, Generated):
            self.told.update(_chain(result.node, result.thoughts))
        self._call("tell", result)
        self._show_tree()

    def result(self) -> SearchResult | None:
        """See Search."""
        found = self._call("result")
        return None if found is None else self._checked("result", found)

    def stop(self) -> SearchResult:
        """See Search."""
        return self._checked("stop", self._call("stop"))

    def _show_tree(self) -> None:
        tree = self._guarded("tree", lambda: self._inner.tree)
        if tree is not None and not isinstance(tree, Tree):
            self._refuse("tree", f"is {described(tree)}; it must be a tts.search.Tree, or None")
        self.tree = tree

    def _checked(self, method: str, found: object) -> SearchResult:
        if not isinstance(found, SearchResult) or not isinstance(found.tree, Tree):
            self._refuse(method, f"gave {described(found)}; it must return a SearchResult")
        for done in found.completions:
            if not isinstance(done, Completion) or not _is_score(done.score):
                self._refuse(method, f"has {described(done)} among its completions")
            ends = [done.node[:depth] for depth in range(1, len(done.node) + 1)]
            if not ends or not all((node := found.tree.get(end)) and node.thought for end in ends):
                self._refuse(
                    method, f"has a completion at node {done.node}, whose chain is not in its tree"
                )
        return replace(found, completions=tuple(found.completions))


class OwnHints(_Guard, Hints):
    """The hints of the user's search, checked."""

    def __init__(self, search: OwnSearch, inner: Hints) -> None:
        self._search, self._inner, self._name = search, inner, name_of(type(inner))

    def needs(self) -> dict[NodePath, bool]:
        """See Hints."""
        needs = self._call("needs")
        if not isinstance(needs, dict):
            self._refuse("needs", f"gave {described(needs)}; it must return a dict of nodes")
        return needs

    def guess(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Hints; an error in it is raised when the search is asked next."""
        told = self._search.told | {
            node for path, thoughts in answered.items() for node in _chain(path, thoughts)
        }
        try:
            for guess in self._inner.guess(answered):
                if not isinstance(guess, Guess):
                    self._refuse("guess", f"gave {described(guess)}; it must yield Guess objects")
                self._check("guess", guess.work, told)
                yield guess
        except TtsError as error:
            self._search.failure = error
        except GeneratorExit:
            raise
        except BaseException as error:
            self._search.failure = failed(f"{self._name}.guess", error, type(self._inner))

    def expandable(self) -> Container[NodePath]:
        """See Hints."""
        nodes = self._call("expandable")
        if not isinstance(nodes, Container):
            self._refuse("expandable", f"gave {described(nodes)}; it must return a set of nodes")
        return nodes


def _chain(first: NodePath, thoughts: Sequence[Thought]) -> Iterator[NodePath]:
    """The nodes of thoughts that were generated together."""
    return (first + (0,) * depth for depth in range(len(thoughts)))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_score(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))
