"""Admission control: which request may start, in what order. Pure: no engine, no clock.

A request is admitted only when the KV blocks of its worst case are free (guaranteed_no_evict), so
the pipeline never runs out of cache and never preempts. First come, first served: smaller requests
never overtake a large one at the head of the queue, so it cannot starve. Only a request that the
caller holds back lets others pass: for a moment (prefix_cache), or until its grammar is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


class BlockAdmission:
    """KV blocks and batch slots of one engine.

    Every ticket given to `enqueue` is given to `release` once, admitted or still waiting.
    """

    def __init__(self, *, blocks: int, block_size: int, max_active: int) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.max_active = max_active
        self._waiting: dict[int, int] = {}  # ticket -> blocks, in order of arrival
        self._held_back: set[int] = set()
        self._active: dict[int, int] = {}
        self._reserved = 0

    @property
    def reserved(self) -> int:
        """Blocks promised to active requests."""
        return self._reserved

    @property
    def active(self) -> int:
        """Number of admitted requests that are not released yet."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    def enqueue(self, ticket: int, tokens: int, *, held_back: bool = False) -> None:
        """Queue a request of at most `tokens` tokens, prompt and output together.

        With `held_back` it keeps its place, and does not start before `let_in`.
        Raises ValueError if it could never start, or if the ticket is known already.
        """
        blocks = -(-tokens // self.block_size)
        if blocks > self.blocks:
            raise ValueError(f"{tokens} tokens need {blocks} blocks; the pool has {self.blocks}")
        if ticket in self._waiting or ticket in self._active:
            raise ValueError(f"ticket {ticket} is queued or admitted already")
        self._waiting[ticket] = blocks
        if held_back:
            self._held_back.add(ticket)

    def let_in(self, ticket: int) -> None:
        """Let a request start that was held back."""
        self._held_back.discard(ticket)

    def admit(self, may_enter: Callable[[int], bool] = lambda ticket: True) -> Iterator[int]:
        """Take every request off the queue that may start now, oldest first, one by one.

        `may_enter` is asked last, and only for a ticket that starts if it says yes.
        """
        for ticket, blocks in list(self._waiting.items()):
            if ticket in self._held_back:
                continue
            if self.active >= self.max_active or self._reserved + blocks > self.blocks:
                break
            if not may_enter(ticket):
                continue
            del self._waiting[ticket]
            self._active[ticket] = blocks
            self._reserved += blocks
            yield ticket

    def release(self, ticket: int) -> None:
        """Forget a request: its place in the queue, or its blocks. Raises KeyError if unknown."""
        if ticket in self._waiting:
            del self._waiting[ticket]
            self._held_back.discard(ticket)
        else:
            self._reserved -= self._active.pop(ticket)
