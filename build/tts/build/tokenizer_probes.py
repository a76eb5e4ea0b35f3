"""Whether a tokenizer keeps texts apart, and gives them back: tried on a few."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import CheckpointError
from .tokenizer import Tokenizer

APART = (
    ("1 + 1 = 2", "1 + 1 = 3"),
    ("12", "21"),
    ("a - b", "a + b"),
    ("The answer is 7.", "The answer is -7."),
    ("Let x be the sum.", "Let x be the product."),
)
"""Texts that no model of mathematics may take for each other."""
KEPT = ("x < y", "f(X) = 2*x^2", "$\\frac{1}{2}$", "\\boxed{[1, 2]}", "So n > 0.\n\nHence 3 & 4")
"""Texts that a generator reads and writes."""


def require_apart(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer to which different texts are the same, or nothing."""
    for one, other in APART:
        ids = tokenizer.encode(one)
        if ids and ids != tokenizer.encode(other):
            continue
        what = (
            f"gives {one!r} and {other!r} the same ids, {ids}" if ids else f"has no ids for {one!r}"
        )
        raise CheckpointError(
            f"{tokenizer.checkpoint / 'tokenizer.json'} {what}.",
            hint="The file is damaged, or of a model of another kind: take it from the "
            "checkpoint's publisher again.",
        )


def changed_texts(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Texts that come back from their ids as others, each with what becomes of it.

    White space at the ends does not count: SentencePiece puts a space in front of any text.
    """
    for text in KEPT:
        back = tokenizer.decode(tokenizer.encode(text))
        if back.strip() != text.strip():
            yield text, back
