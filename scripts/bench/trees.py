"""The trees that the searches of a measurement have grown."""

from __future__ import annotations

from collections.abc import Mapping

from tts.lab.simulation.scenario import digest_of
from tts.search import Search
from tts.search.tree import Tree


def tree_of(search: Search) -> Tree:
    """The tree of a built-in search, all of which show theirs."""
    assert search.tree is not None
    return search.tree


def thoughts_of(searches: Mapping[str, Search]) -> int:
    """How many thoughts the searches have, all together."""
    return sum(len(tree_of(search)) for search in searches.values())


def digest_of_all(searches: Mapping[str, Search]) -> str:
    """One digest of all trees, by the names of their problems."""
    return digest_of({name: tree_of(search).digest() for name, search in searches.items()})
