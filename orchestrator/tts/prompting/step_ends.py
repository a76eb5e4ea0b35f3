"""Where steps end: in the text of generated tokens, and as ids that spell a delimiter."""

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
    # the rule: the last token completed it
    if delimiter not in text.removesuffix(decode(ids[-1:])):
        return Thought(ids, text, Stop.STEP)
    cut = ids[: _step_end(ids, 0, decode, delimiter)]
    return Thought(cut, decode(cut), Stop.STEP)


def _step_end(ids: Sequence[int], start: int, decode: Decode, delimiter: str) -> int | None:
    """End (exclusive) of the step that begins at `start`, or None if no delimiter follows."""
    size = end_of(delimiter, ids[start:], decode) if start < len(ids) else None
    return None if size is None else start + size


StopWord = tuple[int, ...]


def delimiter_stop_words(token_texts: Sequence[str], delimiter: str) -> list[StopWord]:
    r"""Token sequences after which the text holds `delimiter`.

    Every vocabulary entry whose text contains it, plus every sequence of shorter tokens that
    spells exactly it. Spellings that straddle other text (`".\n"`, `"\nSo"`) are not listed: they
    would number thousands; `split_steps` finds them in the text.
    """
    single = [(token,) for token, text in enumerate(token_texts) if delimiter in text]
    return single + list(_spellings(delimiter, _pieces(token_texts, delimiter)))


def count_stop_words(token_texts: Sequence[str], delimiter: str) -> int:
    """How many `delimiter_stop_words` are: they may be too many to list."""
    pieces = _pieces(token_texts, delimiter)
    ways = [1]
    for end in range(1, len(delimiter) + 1):
        ways.append(
            sum(ways[start] * len(pieces.get(delimiter[start:end], ())) for start in range(end))
        )
    return sum(delimiter in text for text in token_texts) + ways[-1]


def _pieces(token_texts: Sequence[str], delimiter: str) -> dict[str, list[int]]:
    """The tokens that spell a part of the delimiter, by their texts."""
    pieces: dict[str, list[int]] = {}
    for token, text in enumerate(token_texts):
        if text and text != delimiter and text in delimiter:
            pieces.setdefault(text, []).append(token)
    return pieces


def _spellings(text: str, pieces: dict[str, list[int]]) -> list[StopWord]:
    if not text:
        return [()]
    return [
        (token, *rest)
        for size in range(1, len(text) + 1)
        for token in pieces.get(text[:size], ())
        for rest in _spellings(text[size:], pieces)
    ]
