"""The values of a search: thoughts, paths, fates, scores; requests and their answers."""

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

MAX_SCORE = 1.0
"""The best score of a step, and of a path."""


class Stop(StrEnum):
    """Why a thought ended."""

    STEP = "step"
    """It ended at the step delimiter: the chain can go on."""
    END = "end"
    """It ended at the end-of-sequence token."""
    LENGTH = "length"
    """It ended at a token limit of the request or the engine."""
    CUT = "cut"
    """It was ended because its confidence fell below what its search allows."""


class Fate(StrEnum):
    """The outcome of a node."""

    OPEN = "open"
    """Its thought or score is still awaited, or its pool has not been decided."""
    EXPANDED = "expanded"
    """It was kept and has children."""
    PRUNED = "pruned"
    """It was outranked in its pool, or is no longer needed."""
    COMPLETED = "completed"
    """It is the end of one of the n completions."""
    SURPLUS = "surplus"
    """It ends a complete chain beyond the n that come out."""


# values that are made for each thought: frozen they would take three times as long to make


@dataclass(slots=True, unsafe_hash=True)
class Thought:
    """One reasoning step as the generator wrote it; `token_ids` are never re-tokenised."""

    token_ids: tuple[int, ...]
    text: str
    stop: Stop
    thinking: bool = False
    """Whether it belongs to what the model thinks before its answer. A chain whose last thought
    does has no answer."""
    confidence: float | None = None
    """The confidence of the chain's weakest window, at its last thought, where its search asks for
    it."""

    @property
    def blank(self) -> bool:
        """Whether its text is empty or white space."""
        return not self.text.strip()

    @property
    def goes_on(self) -> bool:
        """Whether a chain can be continued after it.

        A step without text means that the model has nothing more to say.
        """
        return self.stop is Stop.STEP and not self.blank


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Temperature 0 is greedy; `max_tokens` bounds one request."""

    temperature: float
    top_p: float
    max_tokens: int
    answer_regex: str | None = None
    """Regular expression that an answer must match; the text around it is free."""
    answer_schema: str | None = None
    """JSON schema (as text) that an answer must satisfy instead."""
    thinking_budget: int | None = None
    """Most tokens of the thinking before the answer; None: as many as the deployment allows."""
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class Confidence:
    """A request for a chain's confidence, which is that of its weakest window.

    A window's is the mean of the natural logarithms of its tokens' probabilities, a multiple of
    a thousandth.
    """

    window: int
    """Tokens of a window; a shorter chain is one."""
    floor: float | None
    """A chain ends at the first token whose window lies below this; None: none does."""


@dataclass(slots=True, unsafe_hash=True)
class Expand:
    """Generate below the parent of `node`: one thought, or with `whole` the rest of the chain.

    The first thought becomes `node`, each further one child 0 of the one before it. Thinking that
    ends is answered together with what follows it.
    """

    node: NodePath
    seed: int
    sampling: Sampling
    whole: bool = False
    confidence: Confidence | None = None
    """What to find out of a whole chain's confidence; None: nothing."""
    most: int | None = None
    """An answer of more tokens than this is of no use, and its end need not be written."""


@dataclass(slots=True, unsafe_hash=True)
class Score:
    """Score the path that ends in `node` (the score of its last step).

    The verifier reads the steps of the path that have text, each as a turn; with `own_turn` the
    last step is a turn even without text. Such a node need not have been generated. With
    `may_be_pruned` siblings may outrank the node whatever its score is, so that the score turns out
    not to be needed (`Hints.needs`).
    """

    node: NodePath
    own_turn: bool = False
    may_be_pruned: bool = False


Work = Expand | Score


@dataclass(slots=True, unsafe_hash=True)
class Generated:
    """The answer to an Expand: one thought, with what was thought before it; `whole`, many."""

    node: NodePath
    thoughts: tuple[Thought, ...]


@dataclass(slots=True, unsafe_hash=True)
class Scored:
    """The answer to a Score: the verifier's probability that the step is right, in [0, 1]."""

    node: NodePath
    score: float
    tokens: int = 0
    """Tokens that the verifier generated for it."""
    request: bytes = b""
    """Equal for nodes whose score is that of one request."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished chain: its last node and its answer's text."""

    node: NodePath
    text: str
    score: float | None
    """The aggregate of the verifier's own scores; None without any."""
    probability: float | None = None
    """The aggregate of what a calibration makes of them; None without a calibration."""

    @property
    def weight(self) -> float:
        """The weight of its vote where votes have weights."""
        return (self.score if self.probability is None else self.probability) or 0.0


def quantise(score: float) -> float:
    """Round a score to SCORE_UNIT; raises ValueError if it is not a probability."""
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score must be within [0, 1], not {score!r}")
    return round(score / SCORE_UNIT) * SCORE_UNIT


def aggregate(scores: Sequence[float], how: Aggregation) -> float:
    """Score of a path from its step scores, as search-and-learn has it.

    A product stays above 0 while a float can hold it: 30 steps of 0.35 are 2.1e-14. Raises
    ValueError where there is no score: a missing one must never count as a good one.
    """
    if not scores:
        raise ValueError("a path without a score has no aggregate")
    if how == "last":
        return scores[-1]
    if how == "min":
        return min(scores)
    if how == "prod":
        return significant(math.prod(scores))
    return significant(math.fsum(scores) / len(scores))


def significant(score: float) -> float:
    """A product, mean or sum of scores to 12 significant digits, against float noise of any size.

    Rounds through decimal text, so the result does not depend on a platform's logarithm.
    """
    return float(f"{score:.12g}")
