"""The stop words that end a step: token ids that spell its delimiter."""

from __future__ import annotations

from collections.abc import Sequence

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
