"""Where an output ends, in token ids. Pure.

Servers end an output by texts, by ids, or by their own idea of the end of a sequence, and some give
the token that ended it with it. Here the same tokens end with the same id whatever the server did:
an end-of-sequence id does not belong to the output, a stop word does, and no output is longer than
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tts.engines.generate_request import StopWords

Word = tuple[int, ...]


class Output:
    """An output that grows, cut where it ends."""

    def __init__(self, end_ids: Collection[int], words: Sequence[StopWords], limit: int) -> None:
        """`limit` is how many tokens it has at most."""
        self._end_ids, self._words, self._limit = end_ids, words, limit
        self._last_ids = frozenset[int]().union(*(each.last_ids for each in words))
        self._ids: list[int] = []
        self.is_over = limit < 1

    def add(self, ids: Sequence[int]) -> int:
        """How many of these further ids belong to it; `is_over` says whether it ends with them."""
        for size, token in enumerate(ids):
            if self.is_over or token in self._end_ids:
                self.is_over = True
                return size
            self._ids.append(token)
            last = len(self._ids) - 1
            self.is_over = last + 1 >= self._limit or (
                token in self._last_ids and any(w.end(self._ids, last) for w in self._words)
            )
        return len(ids)
