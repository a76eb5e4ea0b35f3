"""Plain data that goes in and out of a search.

A search is a state machine for one problem. `ask()` returns the work it wants now; every piece is
returned once. `tell(result)` accepts results in any order; one that is late, unknown or a
duplicate changes nothing. The tree, the scores and the result depend only on the configuration,
the seeds and what the engines answer for a given node, never on the order of events.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from .tree import Tree

NodePath = tuple[int, ...]
"""A node's name: the child indices from the root, which is the empty tuple."""

Aggregation = Literal["last", "min", "prod", "mean"]
"""How the step scores along a path become the score of the path."""

SCORE_UNIT = 1e-4
"""Scores are quantised to this when they are locked, so that float noise cannot reorder ties."""


class Stop(StrEnum):
    """Why a thought ended."""

    STEP = "step"
    """At the step delimiter: the chain can go on."""
    END = "end"
    """At the end-of-sequence token."""
    LENGTH = "length"
    """At a token limit of the request or the engine."""


class Fate(StrEnum):
    """What became of a node."""

    OPEN = "open"
    """Its thought or score is still awaited, or its pool has not been decided."""
    EXPANDED = "expanded"
    """Kept; it has children."""
    PRUNED = "pruned"
    """Outranked by its pool, or no longer needed."""
    COMPLETED = "completed"
    """The end of one of the n completions."""
    SURPLUS = "surplus"
    """A complete chain beyond the n that come out."""
    LOOKAHEAD = "lookahead"
    """A greedy step that only helps to score the one before; not part of any completion."""


@dataclass(frozen=True, slots=True)
class Thought:
    """One reasoning step as the generator wrote it; `token_ids` are never re-tokenised."""

    token_ids: tuple[int, ...]
    text: str
    stop: Stop


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Temperature 0 is greedy; `max_tokens` bounds one request."""

    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Expand:
    """Generate below the parent of `node`: one thought, or with `whole` the rest of the chain.

    The first thought becomes `node`; with `whole` each further one becomes child 0 of the one
    before it. A node whose last index is -1 is a look-ahead.
    """

    node: NodePath
    seed: int
    sampling: Sampling
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """Score the path that ends in `node` (the score of its last step).

    `group` names the siblings among which it will be compared; `completes` says that no score of
    the group will be asked for after this one.
    """

    node: NodePath
    group: NodePath = ()
    completes: bool = True


Work = Expand | Score


@dataclass(frozen=True, slots=True)
class Guess:
    """An expansion that may be asked for later, exactly as it would be asked.

    `level` counts from 1, for children of nodes that the search is about to decide on; `chance` is
    a rough probability that it will be asked for.
    """

    work: Expand
    level: int
    chance: float


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to an Expand: at least one thought; more than one only if it was `whole`."""

    node: NodePath
    thoughts: tuple[Thought, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to a Score: the verifier's probability that the step is right, in [0, 1]."""

    node: NodePath
    score: float


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished chain: its last node, its text, and its aggregated score (None if unscored)."""

    node: NodePath
    text: str
    score: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a finished search gives: n completions (fewer after an early stop) in rank order."""

    completions: tuple[Completion, ...]


class Search(Protocol):
    """One problem's search; see the module's docstring for the contract."""

    @property
    def tree(self) -> Tree:
        """All nodes so far."""

    @property
    def done(self) -> bool:
        """True once nothing that could still be told would change the result."""

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""

    def unwanted(self) -> list[NodePath]:
        """Nodes whose score was asked for and cannot change anything any more; each is told once.

        Such a node is pruned without a score.
        """

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """Expansions that may be asked for later, best first: shallow, then by the parent's score.

        At most as many children as could really be asked for; below those that are in `answered`
        the next level is foreseen, and so on.
        """

    def expandable(self) -> Container[NodePath]:
        """Nodes that await the search's decision and may yet be expanded."""

    def result(self) -> SearchResult:
        """The outcome; raises RuntimeError before `done`."""


def quantise(score: float) -> float:
    """Round a score to SCORE_UNIT; refuses what is not a probability (ValueError)."""
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score must be within [0, 1], not {score!r}")
    return round(score / SCORE_UNIT) * SCORE_UNIT


def aggregate(scores: Sequence[float], how: Aggregation) -> float:
    """Score of a path from its step scores, rounded far below SCORE_UNIT (search-and-learn).

    Raises ValueError where there is no score: a missing one must never count as a good one.
    """
    if not scores:
        raise ValueError("a path without a score has no aggregate")
    if how == "last":
        return scores[-1]
    if how == "min":
        return min(scores)
    if how == "prod":
        return round(math.prod(scores), 12)
    return round(math.fsum(scores) / len(scores), 12)
