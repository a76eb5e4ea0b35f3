"""The pipeline's prefix cache, replicated: which block each request holds, and who must wait.

OpenVINO GenAI's prefix cache names each block by its content. A prompt takes, when it is added, the
blocks of its beginning: whole ones as long as they are there, then at most one that is partly
filled. What it computes it writes into that last block too, and as the kernel pads the block in
which a chunk of a prompt ends, zeros after it: there is no copy-on-write in the prompt phase. And
blocks have their names before their content is computed. So a result is wrong if and only if

- a prompt takes a block whose content is not computed yet, or
- two that are in the prompt phase hold a partly filled block and do not write the same.

Who decodes copies a shared block before it writes. An exception is a prompt that fills the block
exactly: it keeps the shorter name until the first token beyond is decoded.

`PrefixCache` therefore does what block_manager.hpp, scheduler.hpp, pipeline_impl.cpp and
sampler.cpp do
(2026.4, with `dynamic_split_fuse`): all of it depends on the order of requests, on their tokens and
on which have ended, and on nothing else. Eviction is by last use: taking a block is one, and
overwriting a kept one, but neither taking a free one nor giving one back. The engine compares the
number of blocks in use with the pipeline's after each step. Pure: no engine, no clock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Hash = int
_MAX_TOKENS = 1 << 20
_MUCH_NEW = 64
"""Tokens of a prompt that take longer to compute once more than to wait for."""
_MULTIPLIERS = np.random.default_rng(0).integers(1, 2**63, 4096, dtype=np.uint64)


def prefix_hashes(ids: npt.NDArray[np.int64]) -> list[Hash]:
    """A 64-bit hash of every prefix of `ids`, shortest first."""
    terms = (ids + 1).view(np.uint64) * _multipliers(len(ids))
    hashes: list[Hash] = terms.cumsum().tolist()
    return hashes


def extend_hashes(hashes: list[Hash], generated: Sequence[int]) -> None:
    """Append to the prefix hashes of some tokens those with the tokens that were generated next."""
    multipliers = _multipliers(len(hashes) + len(generated))[len(hashes) :]
    for token, multiplier in zip(generated, multipliers.tolist(), strict=True):
        hashes.append((hashes[-1] + (token + 1) * multiplier) % 2**64)


def _multipliers(count: int) -> npt.NDArray[np.uint64]:
    global _MULTIPLIERS
    if count > len(_MULTIPLIERS):
        size = min(_MAX_TOKENS, 2 * count)
        _MULTIPLIERS = np.random.default_rng(0).integers(1, 2**63, size, dtype=np.uint64)
    return _MULTIPLIERS[:count]


@dataclass(eq=False, slots=True)
class _Block:
    last_use: int
    name: Hash = 0
    holders: int = 0
    computed: int = 0
    """Number of tokens, from the sequence's first on, whose computed prefix it ends."""
    writers: int = 0
    """Sequences that took it partly filled and may still write into it."""
    branch: Hash = 0
    """What it holds once the writers have written."""
    window: int = 0
    """The step before which they came."""


@dataclass(eq=False, slots=True)
class _Sequence:
    names: list[Hash]
    """Prefix hashes of its tokens: the name of the block that ends with each."""
    prompt: int
    computed: int
    table: list[_Block] = field(default_factory=list)
    partly_filled: _Block | None = None
    """The block of which it is a writer."""


class PrefixCache:
    """The blocks of a pool, and the requests that run on it, in the order in which they came."""

    def __init__(self, *, blocks: int, block_size: int, step_tokens: int) -> None:
        """`step_tokens` is how many tokens a step computes at most."""
        self.missed = 0
        """Prompts of which a whole block had been kept, and was overwritten before they came."""
        self.in_use = 0
        """Blocks in use in the last step."""
        self._blocks = blocks
        self._block_size = block_size
        self._step_tokens = step_tokens
        self._free = deque(_Block(number - blocks) for number in range(blocks))
        self._named: dict[Hash, _Block] = {}
        """Blocks in use that prompts find, and some of the kept ones."""
        self._kept: dict[Hash, _Block] = {}
        """Blocks in use no more, which prompts find too."""
        self._oldest: list[tuple[int, Hash]] = []
        """Heap of the kept blocks by last use; an entry is void if its block is not kept now."""
        self._overwritten: OrderedDict[Hash, None] = OrderedDict()
        self._running: dict[int, _Sequence] = {}
        self._long: dict[Hash, int] = {}
        """Prompts that are being computed, and those with much to compute in the next step, with
        their lengths."""
        self._stopped: Collection[int] = ()
        self._uses = 0
        self._window = 0

    def may_enter(self, names: Sequence[Hash]) -> bool:
        """Whether a prompt, given as its prefix hashes, gets right results if it is added now."""
        if any(names[length - 1 : length] == [name] for name, length in self._long.items()):
            return False
        ends = self._findable(names)
        blocks = [self._find(names[end - 1]) for end in ends]
        if any(block.computed < end for block, end in zip(blocks, ends, strict=True)):
            return False
        if not ends or not ends[-1] % self._block_size or not blocks[-1].writers:
            return True
        # those with the same window write the same at the same time if one step computes them whole
        alike = blocks[-1].branch == self._branch(names, ends[-1])
        entering = len(names) - ends[-1] + (ends[-1] == len(names))
        load = entering + sum(max(1, s.prompt - s.computed) for s in self._running.values())
        return alike and blocks[-1].window == self._window and load <= self._step_tokens

    def enter(self, ticket: int, names: list[Hash]) -> None:
        """A request is added to the pipeline; `names` belongs to the cache from now on."""
        ends = self._findable(names)
        table = [self._find(names[end - 1]) for end in ends]
        for block in table:
            if not block.holders:
                del self._kept[block.name]
            block.holders += 1
            self._use(block)
        computed = ends[-1] - (ends[-1] == len(names)) if ends else 0
        sequence = self._running[ticket] = _Sequence(names, len(names), computed, table)
        if ends and ends[-1] % self._block_size:
            block = sequence.partly_filled = table[-1]
            block.writers += 1
            block.branch, block.window = self._branch(names, ends[-1]), self._window
        if len(names) - computed > _MUCH_NEW:
            self._long[names[-1]] = len(names)
        missed = self._overwritten.keys() & names[self._block_size - 1 :: self._block_size]
        self.missed += bool(missed)
        for name in missed:
            del self._overwritten[name]

    def step(self, stopped: Collection[int] = ()) -> None:
        """The pipeline computes a step; the requests that it was told to stop take no part."""
        self._window += 1
        self._stopped = frozenset(stopped)
        room = self._step_tokens
        live = [sequence for ticket, sequence in self._running.items() if ticket not in stopped]
        new = [sequence for sequence in live if sequence.computed < sequence.prompt]
        for sequence in new:  # a prompt found whole: its last token is computed again
            if len(sequence.table) > self._blocks_of(sequence.computed):
                self._release(sequence.table.pop())
        for sequence in live:
            if sequence.computed >= sequence.prompt and room:
                room -= 1
                self._settle(sequence)
                self._decode(sequence)
        for sequence in new:
            tokens = min(room, sequence.prompt - sequence.computed)
            room -= tokens
            self._compute(sequence, sequence.computed + tokens)
        self.in_use = self._blocks - len(self._free) - len(self._kept)
        self._long = {s.names[-1]: s.prompt for s in new if s.computed < s.prompt}

    def extend(self, ticket: int, generated: Sequence[int]) -> None:
        """A running request has these tokens now."""
        sequence = self._running[ticket]
        extend_hashes(sequence.names, generated[len(sequence.names) - sequence.prompt :])

    def leave(self, tickets: Collection[int]) -> None:
        """At a step's end these requests leave the pipeline; unknown ones are ignored.

        The sampler drops those that are finished, and only then those go that were stopped.
        """
        leaving = [ticket for ticket in self._running if ticket in tickets]
        for ticket in sorted(leaving, key=self._stopped.__contains__):
            sequence = self._running.pop(ticket)
            self._settle(sequence)
            for block in sequence.table:
                self._release(block)

    def _findable(self, names: Sequence[Hash]) -> list[int]:
        """The lengths of the prefixes that end the blocks which a prompt takes."""
        ends: list[int] = []
        while (start := ends[-1] if ends else 0) < len(names):
            whole = min(start + self._block_size, len(names))
            for end in (whole, *range(start + 1, whole)):
                if names[end - 1] in self._kept or names[end - 1] in self._named:
                    ends.append(end)
                    break
            else:
                return ends
            if end < whole:
                return ends
        return ends

    def _find(self, name: Hash) -> _Block:
        return self._kept.get(name) or self._named[name]

    def _branch(self, names: Sequence[Hash], end: int) -> Hash:
        """The prompt up to the end of the block in which `end` is."""
        return names[min(self._blocks_of(end) * self._block_size, len(names)) - 1]

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def _settle(self, sequence: _Sequence) -> None:
        """What a sequence does from now on reaches no partly filled block of others."""
        if sequence.partly_filled:
            sequence.partly_filled.writers -= 1
            sequence.partly_filled = None

    def _decode(self, sequence: _Sequence) -> None:
        end, last = sequence.computed + 1, sequence.table[-1]
        if self._blocks_of(end) > len(sequence.table):
            self._grow(sequence, end)
        elif last.holders > 1:  # copy on write
            sequence.table[-1] = self._allocate(sequence.names[end - 1])
            self._release(last)
        else:
            self._rename(last, sequence.names[end - 1])
        sequence.computed = sequence.table[-1].computed = end

    def _compute(self, sequence: _Sequence, end: int) -> None:
        self._grow(sequence, end)
        for place in range(sequence.computed // self._block_size, self._blocks_of(end)):
            sequence.table[place].computed = min(end, (place + 1) * self._block_size)
        sequence.computed = end
        if end == sequence.prompt and end % self._block_size:
            self._settle(sequence)

    def _grow(self, sequence: _Sequence, end: int) -> None:
        names, table = sequence.names, sequence.table
        if table and self._blocks_of(end) > len(table):
            whole = names[len(table) * self._block_size - 1]
            if table[-1].name != whole:
                self._rename(table[-1], whole)
        while self._blocks_of(end) > len(table):
            length = min((len(table) + 1) * self._block_size, len(names))
            table.append(self._allocate(names[length - 1]))

    def _rename(self, block: _Block, name: Hash) -> None:
        self._named.pop(block.name, None)  # whichever block that is
        block.name = name
        self._named[name] = block

    def _allocate(self, name: Hash) -> _Block:
        if self._free:
            block = self._free.popleft()
        else:
            while True:
                last_use, oldest = heapq.heappop(self._oldest)
                if oldest in self._kept and self._kept[oldest].last_use == last_use:
                    break
            block = self._kept.pop(oldest)
            self._named.pop(oldest, None)
            self._use(block)
            self._overwritten[oldest] = None
            if len(self._overwritten) > 4 * self._blocks:
                self._overwritten.popitem(last=False)
        block.name, block.holders, block.computed = name, 1, 0
        self._named[name] = block
        return block

    def _use(self, block: _Block) -> None:
        self._uses += 1
        block.last_use = self._uses

    def _release(self, block: _Block) -> None:
        block.holders -= 1
        if block.holders:
            return
        if other := self._kept.pop(block.name, None):
            self._free.append(other)
            if self._named.get(block.name) is other:
                self._named[block.name] = block
        self._kept[block.name] = block
        heapq.heappush(self._oldest, (block.last_use, block.name))
        if len(self._oldest) > 4 * self._blocks:  # most are void
            self._oldest = sorted((block.last_use, name) for name, block in self._kept.items())
