"""The prefix cache of OpenVINO GenAI's pipeline, as far as it decides what a sequence reads.

Written after `block_manager.hpp`, `scheduler.hpp` and the paged attention of the CPU plug-in
(2026.4): a model, not the library. The key and value of a token are its whole prefix; whatever else
a sequence finds in a slot that it reads is a wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Content = tuple[int, ...]


@dataclass(eq=False)
class Block:
    """One KV block: who holds it, under which content it is found, and what is in its slots."""

    slots: list[Content | None]
    content: Content = ()
    holders: int = 0
    used: int = 0


@dataclass(eq=False)
class Sequence:
    """One request with its tokens so far, `computed` of which are in the cache."""

    tokens: list[int]
    prompt: int
    computed: int = 0
    table: list[Block] = field(default_factory=list)


class PrefixCacheModel:
    """A pool of blocks and the sequences that run on it."""

    def __init__(self, *, blocks: int, block_size: int, step_tokens: int) -> None:
        self.size = block_size
        self.step_tokens = step_tokens
        self.free = [Block([None] * block_size) for _ in range(blocks)]
        self.found: dict[Content, Block] = {}  # what a prompt finds: blocks in use and kept ones
        self.kept: dict[Content, Block] = {}  # in use no more
        self.running: list[Sequence] = []
        self.wrong: list[Sequence] = []
        self._clock = 0

    def add(self, prompt: list[int]) -> Sequence:
        """A request enters; what its prompt finds is its own from now on."""
        sequence = Sequence(list(prompt), len(prompt))
        self.running.append(sequence)
        while sequence.computed < len(prompt):
            start = sequence.computed
            full = min(start + self.size, len(prompt))
            ends = [full, *range(start + 1, full)]
            end = next((end for end in ends if self._has(tuple(prompt[:end]))), None)
            if end is None:
                break
            sequence.table.append(self._take(tuple(prompt[:end])))
            sequence.computed = end
            if end < start + self.size:
                break
        sequence.computed = min(sequence.computed, len(prompt) - 1)
        return sequence

    def step(self) -> list[Sequence]:
        """Compute a step; returns the sequences that a token is due to."""
        chunks: list[tuple[Sequence, int]] = []
        budget = self.step_tokens
        decoding = [s for s in self.running if s.computed >= s.prompt]
        for sequence in decoding:
            if budget:
                self._append_slot(sequence)
                chunks.append((sequence, sequence.computed + 1))
                budget -= 1
        for sequence in self.running:
            if budget and sequence not in decoding:
                end = min(sequence.prompt, sequence.computed + budget)
                budget -= end - sequence.computed
                self._allocate(sequence, end)
                chunks.append((sequence, end))
        for sequence, end in chunks:
            for place in range(sequence.computed, end):
                block = sequence.table[place // self.size]
                block.slots[place % self.size] = tuple(sequence.tokens[: place + 1])
        for sequence, end in chunks:
            if sequence.computed < sequence.prompt and end % self.size:
                last = sequence.table[end // self.size]
                last.slots[end % self.size :] = [None] * (self.size - end % self.size)
        due = []
        for sequence, end in chunks:
            slots = [slot for block in sequence.table for slot in block.slots][:end]
            if slots != [tuple(sequence.tokens[: n + 1]) for n in range(end)]:
                self.wrong.append(sequence)
            sequence.computed = end
            if end == len(sequence.tokens):
                due.append(sequence)
        return due

    def leave(self, sequence: Sequence) -> None:
        """A request is over; its blocks are kept for those that find them."""
        self.running.remove(sequence)
        for block in sequence.table:
            self._release(block)

    def _has(self, content: Content) -> bool:
        return content in self.kept or content in self.found

    def _take(self, content: Content) -> Block:
        block = self.kept.pop(content, None) or self.found[content]
        self._touch(block)
        block.holders += 1
        return block

    def _touch(self, block: Block) -> None:
        self._clock += 1
        block.used = self._clock

    def _allocate(self, sequence: Sequence, end: int) -> None:
        needed = -(-end // self.size) - len(sequence.table)
        if needed > 0 and sequence.table:
            self._rename(sequence.table[-1], sequence, len(sequence.table) * self.size)
        for _ in range(needed):
            length = min((len(sequence.table) + 1) * self.size, len(sequence.tokens))
            sequence.table.append(self._new(tuple(sequence.tokens[:length])))

    def _append_slot(self, sequence: Sequence) -> None:
        length = len(sequence.tokens)
        if -(-length // self.size) > len(sequence.table):
            self._allocate(sequence, length)
        elif sequence.table[-1].holders > 1:  # copy on write
            shared = sequence.table[-1]
            copy = sequence.table[-1] = self._new(tuple(sequence.tokens))
            copy.slots[:] = shared.slots
            self._release(shared)
        else:
            self._rename(sequence.table[-1], sequence, length)

    def _rename(self, block: Block, sequence: Sequence, length: int) -> None:
        content = tuple(sequence.tokens[:length])
        if block.content != content:
            self.found.pop(block.content, None)
            block.content = content
            self.found[content] = block

    def _new(self, content: Content) -> Block:
        if self.free:
            block = self.free.pop(0)
        else:
            block = min(self.kept.values(), key=lambda block: block.used)
            del self.kept[block.content]
            self.found.pop(block.content, None)
            self._touch(block)
        block.holders, block.content = 1, content
        self.found[content] = block
        return block

    def _release(self, block: Block) -> None:
        block.holders -= 1
        if not block.holders:
            if other := self.kept.pop(block.content, None):
                self.free.append(other)
                if self.found.get(block.content) is other:
                    self.found[block.content] = block
            self.kept[block.content] = block
