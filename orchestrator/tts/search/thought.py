"""The values of a search: thoughts, where they stand, what became of them, how they score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

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
class Completion:
    """One finished chain: its last node, its text, and its aggregated score (None if unscored)."""

    node: NodePath
    text: str
    score: float | None


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
