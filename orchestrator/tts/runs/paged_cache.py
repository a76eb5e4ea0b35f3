"""What a paged KV cache of any size makes of a run's requests: hits, evictions, thrashing. Pure.

The cache holds whole blocks of `block_size` tokens, each known by all tokens up to its end, so that
blocks of common prefixes are shared (a radix tree, one block an edge). A request looks up the
blocks of its prompt, except that its last token is always computed, and keeps those up to a first
miss. It uses its blocks when it is sent and again when it ends; then the blocks of its generated
tokens are kept, too. The least recently used block is evicted, leaves before their parents, as
TensorRT-LLM, SGLang and vLLM do.

Since a request uses whole paths from the root, a block was never used later than its parent: with
the blocks of a path ordered by depth, leaf-first LRU is plain LRU over blocks, which is a stack
algorithm (Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2),
1970). A cache of C blocks holds the C that were used last, so the stack distance of a look-up, the
number of other blocks used since, tells for every C whether it is a hit: one pass gives all sizes,
exactly.

Simplifications: requests are served as they are sent, limited by memory only; requests in flight
count as computed; a block of a running request is not held, only used recently. If the pool is
smaller than concurrent requests need, an engine would let requests wait, while the model thrashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from tts.build.tokenizer import Ids


class TimedRequest(NamedTuple):
    """A request with all its token ids; times in seconds on any one clock."""

    sent: float
    done: float
    prompt: Ids
    """Token ids, int32 [length]."""
    generated: Ids


class Use(NamedTuple):
    """A request uses the blocks on a path."""

    path: tuple[int, ...]
    """Numbers of the blocks, from the root."""
    looked_up: bool
    """Whether they are looked up, as those of a prompt that was just sent."""


@dataclass(frozen=True)
class CacheUse:
    """What a cache of one size made of a run."""

    blocks: int
    lookups: int
    """Blocks of prompts that were looked up."""
    hits: int
    compulsory_misses: int
    """Misses on blocks that no request had used before: those of an infinite cache."""
    thrashed: int
    """Misses on blocks that had been in the cache before, and were evicted."""
    evictions: int

    @property
    def hit_rate(self) -> float | None:
        """Hits over look-ups; None without any."""
        return self.hits / self.lookups if self.lookups else None

    @property
    def thrashing(self) -> float | None:
        """The share of look-ups that missed a block which had been there; None without any."""
        return self.thrashed / self.lookups if self.lookups else None


@dataclass(frozen=True)
class CacheCurve:
    """What caches of all sizes make of a run."""

    lookups: int
    compulsory_misses: int
    distinct: int
    """Different blocks used: a cache of so many evicts nothing."""
    least: int
    """Blocks of the largest request: the smallest pool that can serve the run."""
    _hits: tuple[int, ...]
    """Look-ups that hit in a cache of so many blocks, by blocks."""
    _returns: tuple[int, ...]
    """Uses that hit in a cache of so many blocks, by blocks."""
    _uses: int
    """Uses of blocks that had been used before."""

    def at(self, blocks: int) -> CacheUse:
        """With a cache of so many blocks; raises ValueError if the largest request does not fit."""
        if blocks < self.least:
            raise ValueError(f"a request of {self.least} blocks does not fit a pool of {blocks}")
        hits = self._hits[min(blocks, len(self._hits) - 1)]
        returns = self._returns[min(blocks, len(self._returns) - 1)]
        return CacheUse(
            blocks,
            self.lookups,
            hits,
            self.compulsory_misses,
            self.lookups - self.compulsory_misses - hits,
            # what came in again or for the first time, less what is there at the end
            self._uses - returns + self.distinct - min(blocks, self.distinct),
        )


def cache_curve(requests: Iterable[TimedRequest], block_size: int) -> CacheCurve:
    """The paged cache of every size on a run's requests to one engine."""
    return curve_of_uses(uses_in_time(requests, block_size))


def uses_in_time(requests: Iterable[TimedRequest], block_size: int) -> Iterator[Use]:
    """A request's two uses of blocks, of all requests in the order of time."""
    blocks = _Blocks(block_size)
    timed: list[tuple[float, int, Use]] = []
    for request in requests:
        # a generated token's keys are computed with the next one: the last one's never are
        ids = np.concatenate((request.prompt, request.generated[:-1]))
        path = blocks.path(ids)
        looked_up = path[: (len(request.prompt) - 1) // block_size]
        timed.append((request.sent, len(timed), Use(looked_up, True)))
        timed.append((request.done, len(timed), Use(path, False)))
    timed.sort()
    return (use for _, _, use in timed)


def curve_of_uses(uses: Iterable[Use]) -> CacheCurve:
    """Stack distances of all uses in one pass, O(log n) for each; see the module's text."""
    uses = list(uses)
    # By block, when it was used last. Blocks that were used last together are a group.
    last = [-1] * (1 + max((max(use.path, default=-1) for use in uses), default=-1))
    sizes = _PrefixSums(len(uses))
    total = lookups = compulsory = again = least = 0
    lookup_ranges, ranges = _Ranges(), _Ranges()
    for now, (path, looked_up) in enumerate(uses):
        depth, length = 0, len(path)
        least = max(least, length)
        lookups += length * looked_up
        while depth < length and (group := last[path[depth]]) >= 0:
            end = depth + 1
            while end < length and last[path[end]] == group:
                end += 1
            # The blocks used after this group's, and the path's own before this one, which were
            # counted out below as they were met; within the group this path's blocks come first.
            distance = total - sizes.below(group + 1) + depth
            ranges.add(distance, end - depth)
            if looked_up:
                lookup_ranges.add(distance, end - depth)
            sizes.add(group, depth - end)
            total -= end - depth
            depth = end
        again += depth
        compulsory += (length - depth) * looked_up
        for block in path:
            last[block] = now
        sizes.add(now, length)
        total += length
    distinct = total
    return CacheCurve(
        lookups,
        compulsory,
        distinct,
        least,
        lookup_ranges.cumulative(),
        ranges.cumulative(),
        again,
    )


class _PrefixSums:
    """Sums over a growing array of integers in O(log n): a Fenwick tree."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)

    def add(self, place: int, value: int) -> None:
        """Add to one element."""
        sums, size = self._sums, len(self._sums)
        place += 1
        while place < size:
            sums[place] += value
            place += place & -place

    def below(self, place: int) -> int:
        """The sum of all elements before `place`."""
        sums, total = self._sums, 0
        while place:
            total += sums[place]
            place &= place - 1
        return total


class _Ranges:
    """How often each distance occurred, told as ranges of consecutive ones."""

    def __init__(self) -> None:
        self._changes: dict[int, int] = {}

    def add(self, first: int, count: int) -> None:
        """`count` distances from `first` on, once each."""
        changes = self._changes
        changes[first] = changes.get(first, 0) + 1
        changes[first + count] = changes.get(first + count, 0) - 1

    def cumulative(self) -> tuple[int, ...]:
        """How many distances are below each number of blocks."""
        if not self._changes:
            return (0,)
        counts = [0] * max(self._changes)
        for place, change in self._changes.items():
            if place < len(counts):
                counts[place] = change
        return (0, *accumulate(accumulate(counts)))


class _Blocks:
    """Numbers for blocks: equal where all tokens up to the block's end are."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._numbers: dict[tuple[int, bytes], int] = {}
        """Numbers of blocks, by that of the block before (-1 for none) and the own tokens."""

    def path(self, ids: Ids) -> tuple[int, ...]:
        """The whole blocks of token ids."""
        size, numbers = self._size * ids.itemsize, self._numbers
        data, before, path = ids.tobytes(), -1, []
        for end in range(size, len(data) + 1, size):
            before = numbers.setdefault((before, data[end - size : end]), len(numbers))
            path.append(before)
        return tuple(path)
