"""Where an output ends, in token ids. Pure.

Servers end an output by texts, by ids, or by their own idea of the end of a sequence, and some give
the token that ended it with it. Here the same tokens end with the same id whatever the server did:
an end-of-sequence id does not belong to the output, a stop word does, and no output is longer than
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

Word = tuple[int, ...]


class StopWords:
    """Token sequences that end an output; there may be thousands."""

    def __init__(self, words: Iterable[Word]) -> None:
        self._by_last: dict[int, list[Word]] = {}
        for word in words:
            if word:
                self._by_last.setdefault(word[-1], []).append(word)
        self.longest = max((len(w) for words in self._by_last.values() for w in words), default=0)

    def end(self, ids: Sequence[int]) -> bool:
        """Whether these ids end with one of them."""
        words = self._by_last.get(ids[-1], ()) if ids else ()
        return any(tuple(ids[-len(word) :]) == word for word in words)


class Output:
    """An output that grows, cut where it ends."""

    def __init__(self, end_ids: Collection[int], words: Sequence[StopWords], limit: int) -> None:
        """`limit` is how many tokens it has at most."""
        self._end_ids, self._words, self._limit = end_ids, words, limit
        self._tail: list[int] = []
        self._kept = max((each.longest for each in words), default=0)
        self._count = 0
        self.ended = limit < 1

    def add(self, ids: Sequence[int]) -> int:
        """How many of these further ids belong to it; `ended` says whether it ends with them."""
        for taken, token in enumerate(ids):
            if self.ended or token in self._end_ids:
                self.ended = True
                return taken
            self._count += 1
            self._tail = [*self._tail, token][-self._kept :] if self._kept else self._tail
            self.ended = self._count >= self._limit or any(w.end(self._tail) for w in self._words)
        return len(ids)
