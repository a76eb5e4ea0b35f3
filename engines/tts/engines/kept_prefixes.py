"""Which prefixes a KV pool keeps for reuse, and how often one was missed that it has dropped. Pure.

The library does not tell. As far as requests show, it drops what was used least recently, of a path
the last block first; a prompt takes a partly filled block over, which is then another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from .prefix_guard import Hash


class KeptPrefixes:
    """The blocks of a pool, by the hash of all tokens to each one's end."""

    def __init__(self, *, blocks: int, block_size: int) -> None:
        self.missed = 0
        """Prompts of which a part had been kept, and was dropped before they came."""
        self._blocks = blocks
        self._block_size = block_size
        self._kept: OrderedDict[Hash, None] = OrderedDict()
        self._dropped: OrderedDict[Hash, None] = OrderedDict()

    def enter(self, hashes: Sequence[Hash]) -> None:
        """A prompt is computed, as far as it is not kept; `hashes` are its prefix hashes."""
        prefixes = set(hashes)
        if missed := self._dropped.keys() & prefixes:
            self.missed += 1
            for key in missed:
                del self._dropped[key]
        whole = self._whole(hashes)
        for key in self._kept.keys() & prefixes - set(whole):  # taken over
            del self._kept[key]
        self._use(whole)

    def release(self, hashes: Sequence[Hash]) -> None:
        """A request ended; `hashes` are those of its prompt and all it generated."""
        computed = hashes[:-1]  # a token's keys are computed with the next one
        self._use([*computed[-1:], *self._whole(computed)])

    def _whole(self, hashes: Sequence[Hash]) -> list[Hash]:
        """The whole blocks, the last one first."""
        return list(hashes[self._block_size - 1 :: self._block_size])[::-1]

    def _use(self, keys: Sequence[Hash]) -> None:
        for key in keys:
            self._kept[key] = None
            self._kept.move_to_end(key)
        while len(self._kept) > self._blocks:
            self._dropped[self._kept.popitem(last=False)[0]] = None
        while len(self._dropped) > 4 * self._blocks:
            self._dropped.popitem(last=False)
