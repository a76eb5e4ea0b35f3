"""A paged KV cache with prefix reuse: which blocks are held, not what is in them.

Blocks of whole prefixes form a radix tree: each block is an edge, named by its token ids. A request
holds the path that it reuses and owns further blocks for its worst case, so nothing admitted ever
runs out. Its computed blocks are put into the tree; if two requests computed the same block, one
copy stays. Blocks that no request holds are kept for reuse until room is needed; then the least
recently used are evicted first, leaves before their parents.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.build.tokenizer import Ids


@dataclass(eq=False, slots=True)
class _Block:
    key: bytes = b""
    parent: _Block | None = None
    children: dict[bytes, _Block] = field(default_factory=dict)
    holders: int = 0
    released: int = 0
    """When its last holder released it, on the cache's own count."""


@dataclass(eq=False, slots=True)
class BlockLease:
    """The part of the cache that one request holds."""

    path: list[_Block]
    """Blocks in the tree that it holds, from the root."""
    own: int
    """Blocks outside the tree."""
    reused_tokens: int


class PagedCache:
    """One engine's pool of `blocks` blocks of `block_size` tokens."""

    def __init__(self, blocks: int, block_size: int, *, reuse: bool = True) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self._reuse = reuse
        self._root = _Block()
        self._kept = 0
        """Blocks in the tree; `_idle` of them are not held by any request."""
        self._idle = 0
        self._owned = 0
        self._count = 0
        self._leaves: list[tuple[int, _Block]] = []
        """Heap of idle leaves by release; an entry is void if its block is not one any more."""

    @property
    def occupied(self) -> int:
        """Blocks that hold something, or are reserved for a request."""
        return self._kept + self._owned

    @property
    def unavailable(self) -> int:
        """Blocks that are not available now: owned, or in the tree and held."""
        return self.occupied - self._idle

    def blocks_for(self, tokens: int) -> int:
        """Number of blocks that hold this many tokens."""
        return -(-tokens // self.block_size)

    def open(self, ids: Ids, tokens: int) -> BlockLease | None:
        """Admit a request with this prompt and at most `tokens` in all; None if there is no room.

        At least the prompt's last token is left to compute.
        """
        path = self._match(ids)
        own = self.blocks_for(tokens) - len(path)
        for block in path:
            self._hold(block)
        if self.unavailable + own > self.blocks:
            self._let_go(path)
            return None
        while self.occupied + own > self.blocks:
            self._evict()
        self._owned += own
        return BlockLease(path, own, len(path) * self.block_size)

    def keep(self, lease: BlockLease, ids: Ids) -> None:
        """Put the whole blocks of `ids`, which its request has computed, into the tree."""
        if not self._reuse:
            return
        block = lease.path[-1] if lease.path else self._root
        for key in self._keys(ids, len(ids))[len(lease.path) :]:
            child = block.children.get(key)
            if child is None:
                child = block.children[key] = _Block(key, block)
                self._kept += 1
                self._idle += 1
            self._hold(child)
            lease.path.append(child)
            lease.own -= 1
            self._owned -= 1
            block = child

    def close(self, lease: BlockLease) -> None:
        """The request is over; what it put into the tree stays there for reuse."""
        self._owned -= lease.own
        self._let_go(lease.path)

    def _match(self, ids: Ids) -> list[_Block]:
        path: list[_Block] = []
        block = self._root
        for key in self._keys(ids, len(ids) - 1):
            child = block.children.get(key)
            if child is None:
                break
            path.append(child)
            block = child
        return path

    def _keys(self, ids: Ids, tokens: int) -> list[bytes]:
        data = ids.tobytes()
        size = self.block_size * ids.itemsize
        return [
            data[place * size : (place + 1) * size] for place in range(tokens // self.block_size)
        ]

    def _hold(self, block: _Block) -> None:
        self._idle -= not block.holders
        block.holders += 1

    def _let_go(self, path: list[_Block]) -> None:
        for block in reversed(path):
            block.holders -= 1
            if not block.holders:
                self._idle += 1
                self._count += 1
                block.released = self._count
                self._note_leaf(block)

    def _note_leaf(self, block: _Block) -> None:
        if not block.children and not block.holders and block.parent is not None:
            heapq.heappush(self._leaves, (block.released, block))

    def _evict(self) -> None:
        while True:
            released, block = heapq.heappop(self._leaves)
            parent = block.parent
            if parent and not block.children and not block.holders and block.released == released:
                break
        del parent.children[block.key]
        block.parent = None
        self._kept -= 1
        self._idle -= 1
        self._note_leaf(parent)
