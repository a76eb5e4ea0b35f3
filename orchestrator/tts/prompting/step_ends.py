"""Where steps end in the text of generated tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tts.build.tokenizer import end_of
from tts.search import Stop, Thought

Decode = Callable[[Sequence[int]], str]
QWEN_MARK = "<extra_0>"
"""Ends a step in answers that are written for Qwen's process reward models."""


def steps_of(answer: str, delimiter: str) -> list[str]:
    """The steps of an answer, without those that say nothing."""
    parts = answer.split(QWEN_MARK if QWEN_MARK in answer else delimiter)
    return [part for part in parts if part.strip()]


def split_steps(
    token_ids: Sequence[int], decode: Decode, delimiter: str, *, truncated: bool
) -> tuple[Thought, ...]:
    """Cut generated tokens into thoughts, one per step, at least one.

    A step ends with the token that completes `delimiter` in the text. `truncated` says that the
    generator stopped at a token limit; otherwise what follows the last delimiter was ended by the
    end-of-sequence token, which is not among the ids. Every id lands in exactly one thought.
    """
    thoughts: list[Thought] = []
    start = 0
    while (end := _step_end(token_ids, start, decode, delimiter)) is not None:
        ids = tuple(token_ids[start:end])
        thoughts.append(Thought(ids, decode(ids), Stop.STEP))
        start = end
    rest = tuple(token_ids[start:])
    thoughts.append(Thought(rest, decode(rest), Stop.LENGTH if truncated else Stop.END))
    return tuple(thoughts)


def first_step(
    token_ids: Sequence[int], decode: Decode, delimiter: str, *, truncated: bool
) -> Thought:
    """The first thought only: what a request that stops at the delimiter gives.

    Whatever follows the delimiter (a stop word that the engine missed) is dropped, so that the
    same sample gives the same step on every engine.
    """
    ids = tuple(token_ids)
    text = decode(ids)
    if delimiter not in text:
        return Thought(ids, text, Stop.LENGTH if truncated else Stop.END)
    if delimiter not in decode(ids[:-1]):  # the rule: the last token completed it
        return Thought(ids, text, Stop.STEP)
    cut = ids[: _step_end(ids, 0, decode, delimiter)]
    return Thought(cut, decode(cut), Stop.STEP)


def _step_end(ids: Sequence[int], start: int, decode: Decode, delimiter: str) -> int | None:
    """End (exclusive) of the step that begins at `start`, or None if no delimiter follows."""
    size = end_of(delimiter, ids[start:], decode) if start < len(ids) else None
    return None if size is None else start + size
