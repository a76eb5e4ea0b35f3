"""Which requests may be in the pipeline together when it reuses prefixes.

OpenVINO GenAI's prefix cache keeps the last, partly filled block of a sequence under a hash of its
content. A later prompt that continues that content takes the block over and writes into it. If two
sequences hold such a block at once, both write: there is no copy-on-write in the prompt phase, and
both results are wrong. So a request has to wait while another one

- has a prompt that is a proper prefix of its own (the other still writes after that prefix),
- has the same prompt and has just computed it (its block still has the prompt's hash), or
- may have taken over the same partly filled block and hold it under the old hash.

Once a sequence has decoded one token beyond its first, its block has another hash: it has *moved
on*. So of n samples of one prompt the first goes ahead, and two steps later the others follow.
Requests without a common prefix never wait. Pure: no engine, no clock.

Which block a request took over cannot be seen from outside. It continues a partly filled block only
if the cache has all full blocks before it and not its own full block in that place, which another
request may have left there. A content is therefore kept in the books until it is surely gone: one
too many only makes requests wait, one too few gives wrong results.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hash = int
_MAX_TOKENS = 1 << 20
_MULTIPLIERS = np.random.default_rng(0).integers(1, 2**63, 4096, dtype=np.uint64)


def prefix_hashes(ids: npt.NDArray[np.int64]) -> list[Hash]:
    """A 64-bit hash of every prefix of `ids`, shortest first."""
    terms = (ids + 1).view(np.uint64) * _multipliers(len(ids))
    hashes: list[Hash] = terms.cumsum().tolist()
    return hashes


def extend_hashes(prompt: Sequence[Hash], generated: Sequence[int]) -> list[Hash]:
    """The prefix hashes of a prompt, given as its own, and the tokens generated after it."""
    hashes = list(prompt)
    multipliers = _multipliers(len(prompt) + len(generated))[len(prompt) :]
    for token, multiplier in zip(generated, multipliers.tolist(), strict=True):
        hashes.append((hashes[-1] + (token + 1) * multiplier) % 2**64)
    return hashes


def _multipliers(count: int) -> npt.NDArray[np.uint64]:
    global _MULTIPLIERS
    if count > len(_MULTIPLIERS):
        size = min(_MAX_TOKENS, 2 * count)
        _MULTIPLIERS = np.random.default_rng(0).integers(1, 2**63, size, dtype=np.uint64)
    return _MULTIPLIERS[:count]


@dataclass(slots=True)
class _Entry:
    prompt: Hash
    length: int
    claims: frozenset[Hash]
    taken_over: Hash | None
    """The content whose block it surely holds, if any is in the cache under that hash."""
    entered: int
    moved_on: bool = False


class PrefixGuard:
    """Keeps track of what the prefix cache may hold, and which request may hold a part of it."""

    def __init__(self, *, blocks: int, block_size: int) -> None:
        """`blocks` is the size of the pool, which bounds how many contents it can keep."""
        self._block_size = block_size
        self._contents: OrderedDict[Hash, int] = OrderedDict()  # hash -> length in tokens
        self._first_blocks: OrderedDict[Hash, None] = OrderedDict()
        """Hashes of the full first blocks that the cache may hold."""
        # what so many others have followed was overwritten: the cache drops what is used least
        self._most_kept = 4 * blocks
        self._entries: dict[int, _Entry] = {}
        self._prompts: Counter[Hash] = Counter()
        self._young: dict[Hash, int] = {}  # prompt -> how many entered before and did not move on
        self._claimed: Counter[Hash] = Counter()
        self._blockers: dict[int, tuple[Mapping[Hash, int], Hash]] = {}
        """Why each waiting request was refused last; asking again costs one look-up."""
        self._window = 0

    def enter(self, ticket: int, hashes: Sequence[Hash]) -> bool:
        """Let a request in if it need not wait; `hashes` are its prompt's prefix hashes."""
        if ticket in self._blockers:
            book, blocker = self._blockers[ticket]
            if blocker in book:
                return False
            del self._blockers[ticket]
        prompt, prefixes = hashes[-1], set(hashes)
        claims = self._contents.keys() & prefixes
        for book, blockers in (
            (self._prompts, (self._prompts.keys() & prefixes) - {prompt}),
            (self._young, self._young.keys() & {prompt}),
            (self._claimed, self._claimed.keys() & claims),
        ):
            if blockers:
                self._blockers[ticket] = book, blockers.pop()
                return False
        for claim in claims:
            self._contents.move_to_end(claim)
        self._claimed.update(claims)
        self._prompts[prompt] += 1
        taken_over = self._surely_taken_over(hashes, claims)
        self._keep_first_block(hashes)
        self._entries[ticket] = _Entry(
            prompt, len(hashes), frozenset(claims), taken_over, self._window
        )
        return True

    def stepped(self) -> None:
        """The pipeline has made a step: what entered before it is *young* until it moves on."""
        for entry in self._entries.values():
            if entry.entered == self._window:
                self._young[entry.prompt] = self._young.get(entry.prompt, 0) + 1
        self._window += 1

    def moved_on(self, ticket: int) -> None:
        """A request has decoded a token beyond its first. Unknown tickets are ignored."""
        entry = self._entries.get(ticket)
        if entry and not entry.moved_on:
            entry.moved_on = True
            self._settle(entry)

    def left(self, ticket: int, hashes: Sequence[Hash] = ()) -> None:
        """A request is out of the pipeline; `hashes` are those of its prompt and all it generated.

        Unknown tickets are ignored.
        """
        self._blockers.pop(ticket, None)  # it may leave the queue without having entered
        entry = self._entries.pop(ticket, None)
        if entry is None:
            return
        _subtract(self._prompts, entry.prompt)
        if not entry.moved_on:
            self._settle(entry)
        # Its last block is kept under the prompt and all generated tokens but the last, whose keys
        # were never computed; one token more and one less, because one too many does no harm.
        for length in range(max(entry.length, len(hashes) - 2), len(hashes) + 1):
            self._contents[hashes[length - 1]] = length
            self._contents.move_to_end(hashes[length - 1])
        while len(self._contents) > self._most_kept:
            self._contents.popitem(last=False)
        self._keep_first_block(hashes)

    def _surely_taken_over(self, hashes: Sequence[Hash], claims: set[Hash]) -> Hash | None:
        """The claim whose block a prompt takes over, where that is certain.

        It is in the first block: no block before it can be missing. Without this, a prompt of one
        token, such as a probe's, would hold back everything that begins with it for ever.
        """
        size = self._block_size
        if len(hashes) >= size and hashes[size - 1] in self._first_blocks:
            return None
        in_first_block = [claim for claim in claims if self._contents[claim] < size]
        return in_first_block[0] if len(in_first_block) == 1 else None

    def _keep_first_block(self, hashes: Sequence[Hash]) -> None:
        if len(hashes) < self._block_size:
            return
        first = hashes[self._block_size - 1]
        self._first_blocks[first] = None
        self._first_blocks.move_to_end(first)
        if len(self._first_blocks) > self._most_kept:
            self._first_blocks.popitem(last=False)

    def _settle(self, entry: _Entry) -> None:
        """A request no longer holds a block that others could take over."""
        for claim in entry.claims:
            _subtract(self._claimed, claim)
        filled = entry.moved_on or entry.length > self._block_size
        if entry.taken_over is not None and filled:
            self._contents.pop(entry.taken_over, None)
        if entry.entered < self._window:
            left = self._young[entry.prompt] - 1
            if left:
                self._young[entry.prompt] = left
            else:
                del self._young[entry.prompt]


def _subtract(counter: Counter[Hash], key: Hash) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
