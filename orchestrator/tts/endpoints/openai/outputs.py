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
        self._end_ids, self._words, self._limit = frozenset(end_ids), words, limit
        self._ids: list[int] = []
        self.ended = limit < 1

    def add(self, ids: Sequence[int]) -> int:
        """How many of these further ids belong to it; `ended` says whether it ends with them."""
        if self.ended:
            return 0
        start = len(self._ids)
        new = list(ids[: self._limit - start])
        if not self._end_ids.isdisjoint(new):
            self.ended = True
            del new[next(at for at, token in enumerate(new) if token in self._end_ids) :]
        self._ids += new
        for words in self._words:
            if (end := words.end(self._ids, start)) is not None:
                self.ended = True
                del self._ids[end:]
        self.ended |= len(self._ids) >= self._limit
        return len(self._ids) - start
