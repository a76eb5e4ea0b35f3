"""Which requests may be in the pipeline together when it reuses prefixes.

OpenVINO GenAI's prefix cache keeps the last, partly filled block of a sequence under a hash of its
content. A later prompt that continues that content takes the block over when it is added, and so
does every other one until the block gets another hash; there is no copy-on-write in the prompt
phase. Each of them writes its own tokens into the block and, as the kernel pads the block in which
a chunk of a prompt ends, zeros after them. The block gets another hash when the prompt needs a
further one, or when its request decodes its second token; what shares it then copies it first. So a
request has to wait while another one

- has a prompt that is a prefix of its own and is being computed, or
- may have taken over a block that it would take over as well, and has not *settled*: its prompt
  is computed, and so is its second token if that prompt may fill the block exactly.

A request *claims* everything from which it may take over a block: the contents that finished
requests have left, and the prompts of running ones, which are followed by their contents. Claims do
not conflict between prompts that enter between the same two steps, are alike to the end of that
block, and are certain to be computed whole in the next step: they write the same. So n samples of
one prompt enter together, and requests without a common prefix never wait. Only of a prompt with
much that no partly filled block holds the first enters alone: computing it again takes longer than
waiting for its cache. Pure: no engine, no clock.

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
_MUCH_NEW = 64
"""Tokens of a prompt that take longer to compute once more than to wait for."""
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
class _Claim:
    """Requests of one window that may have taken over one block, and go on alike in it."""

    branch: Hash
    window: int
    holders: int = 0


@dataclass(slots=True)
class _Entry:
    prompt: Hash
    length: int
    claims: Mapping[Hash, Hash]
    """Contents from which it may have taken over a block, and its branch from there."""
    stems: frozenset[Hash]
    """The running prompts among them."""
    taken_over: Hash | None
    """The content whose block it surely holds, if any is in the cache under that hash."""
    window: int
    is_long: bool
    """Whether much of its prompt is new, so that it counts as being computed from its entry on."""
    started: bool = False
    settled: bool = False
    moved_on: bool = False


class PrefixGuard:
    """Keeps track of what the prefix cache may hold, and which request may hold a part of it."""

    def __init__(self, *, blocks: int, block_size: int, step_tokens: int) -> None:
        """`blocks` is the size of the pool, which bounds how many contents it can keep.

        `step_tokens` is how many tokens a step computes at most.
        """
        self._block_size = block_size
        self._step_tokens = step_tokens
        self._contents: OrderedDict[Hash, None] = OrderedDict()
        """Blocks that the cache may hold, by hash."""
        self._first_blocks: OrderedDict[Hash, None] = OrderedDict()
        """Hashes of the full first blocks that the cache may hold."""
        # what so many others have followed was overwritten: the cache drops what is used least
        self._most_kept = 4 * blocks
        self._entries: dict[int, _Entry] = {}
        self._computing: Counter[Hash] = Counter()
        """Prompts that a step has begun to compute and none has ended, and long ones before it."""
        self._stems: Counter[Hash] = Counter()
        """Prompts of running requests, and of those whose blocks others may still hold."""
        self._young: Counter[Hash] = Counter()
        """Prompts under whose own hash a block may still be found."""
        self._claims: dict[Hash, _Claim] = {}
        self._blockers: dict[int, tuple[Mapping[Hash, object], Hash, object]] = {}
        """Why each waiting request was refused last; asking again costs one look-up."""
        self._window = 0
        self._load = 0  # tokens of the next step, if no prefix is reused

    def enter(self, ticket: int, hashes: Sequence[Hash]) -> bool:
        """Let a request in if it need not wait; `hashes` are its prompt's prefix hashes."""
        if ticket in self._blockers:
            book, key, reason = self._blockers[ticket]
            if book.get(key) is reason:
                return False
            del self._blockers[ticket]
        prompt, length = hashes[-1], len(hashes)
        prefixes = dict(zip(hashes, range(1, length + 1), strict=True))
        for key in self._computing.keys() & prefixes.keys():
            self._blockers[ticket] = self._computing, key, self._computing[key]
            return False
        stems = self._stems.keys() & prefixes.keys()
        if prompt not in self._young:
            stems.discard(prompt)
        contents = self._contents.keys() & prefixes.keys()
        claims = dict.fromkeys(stems, prompt)
        for content in contents - stems:
            end = -(-prefixes[content] // self._block_size) * self._block_size
            claims[content] = hashes[min(end, length) - 1]
        for key, branch in claims.items():
            claim = self._claims.get(key)
            if claim and not self._may_join(claim, branch, length, prefixes[key]):
                self._blockers[ticket] = self._claims, key, claim
                return False
        for key, branch in claims.items():
            self._claims.setdefault(key, _Claim(branch, self._window)).holders += 1
        for content in contents:
            self._contents.move_to_end(content)
        self._stems.update([prompt, *stems])
        self._young.update(stems)
        self._load += length
        taken_over = None if stems else self._surely_taken_over(hashes, prefixes, contents)
        self._keep_first_block(hashes)
        cached = max((prefixes[key] for key in claims), default=0)
        is_long = length - cached > _MUCH_NEW
        if is_long:
            self._computing[prompt] += 1
        self._entries[ticket] = _Entry(
            prompt, length, claims, frozenset(stems), taken_over, self._window, is_long
        )
        return True

    def stepped(self) -> None:
        """The pipeline has made a step: what entered before it is being computed."""
        for entry in self._entries.values():
            if entry.window == self._window and not entry.is_long:
                self._computing[entry.prompt] += 1
        self._window += 1

    def started(self, ticket: int) -> None:
        """A request has its first token: its prompt is computed. Unknown tickets are ignored."""
        entry = self._entries.get(ticket)
        if entry and not entry.started:
            self._start(entry)
            if entry.taken_over is not None and entry.length > self._block_size:
                self._contents.pop(entry.taken_over, None)

    def moved_on(self, ticket: int) -> None:
        """A request has decoded a token beyond its first. Unknown tickets are ignored."""
        entry = self._entries.get(ticket)
        if entry and not entry.moved_on:
            self._move_on(entry)

    def release(self, ticket: int, hashes: Sequence[Hash] = ()) -> None:
        """A request is out of the pipeline; `hashes` are those of its prompt and all it generated.

        Unknown tickets are ignored.
        """
        self._blockers.pop(ticket, None)  # it may leave the queue without having entered
        entry = self._entries.pop(ticket, None)
        if entry is None:
            return
        # Its last block is kept under the prompt and all generated tokens but the last, whose keys
        # were never computed; one token more and one less, because one too many does no harm.
        first = max(entry.length, len(hashes) - 2)
        if not entry.moved_on:
            if entry.stems:  # or under what a running request had come to when it took it over
                first = 1 + (entry.length - 1) // self._block_size * self._block_size
            self._move_on(entry)
        self._load -= 1
        _subtract(self._stems, entry.prompt)
        for length in range(first, len(hashes) + 1):
            self._contents[hashes[length - 1]] = None
            self._contents.move_to_end(hashes[length - 1])
        while len(self._contents) > self._most_kept:
            self._contents.popitem(last=False)
        self._keep_first_block(hashes)

    def _may_join(self, claim: _Claim, branch: Hash, length: int, shared: int) -> bool:
        """Whether a prompt writes what those with the claim write, in the same step and whole.

        If they hold the block of the `shared` tokens, nothing before its end is computed again.
        """
        alike = claim.branch == branch and claim.window == self._window
        load = self._load + length - (claim.holders + 1) * shared
        return alike and load <= self._step_tokens

    def _start(self, entry: _Entry) -> None:
        entry.started = True
        self._load -= entry.length - 1
        if entry.window < self._window or entry.is_long:
            _subtract(self._computing, entry.prompt)
        self._young[entry.prompt] += 1
        if entry.length % self._block_size:
            self._settle(entry)

    def _move_on(self, entry: _Entry) -> None:
        entry.moved_on = True
        if not entry.started:
            self._start(entry)
        if not entry.settled:
            self._settle(entry)
        _subtract(self._young, entry.prompt)
        for stem in entry.stems:
            _subtract(self._stems, stem)
            _subtract(self._young, stem)

    def _settle(self, entry: _Entry) -> None:
        """What a request does from now on reaches no block that others could take over."""
        entry.settled = True
        for key in entry.claims:
            self._claims[key].holders -= 1
            if not self._claims[key].holders:
                del self._claims[key]

    def _surely_taken_over(
        self, hashes: Sequence[Hash], prefixes: Mapping[Hash, int], contents: set[Hash]
    ) -> Hash | None:
        """The content whose block a prompt takes over, where that is certain.

        It is in the first block, so no block before it can be missing; from a running request the
        prompt could have taken another. Without this rule a prompt of one token, such as a probe's,
        would block every prompt that starts with that token.
        """
        size = self._block_size
        in_first_block = [content for content in contents if prefixes[content] < size]
        if len(hashes) >= size and hashes[size - 1] in self._first_blocks:
            return None
        return in_first_block[0] if len(in_first_block) == 1 else None

    def _keep_first_block(self, hashes: Sequence[Hash]) -> None:
        if len(hashes) < self._block_size:
            return
        first = hashes[self._block_size - 1]
        self._first_blocks[first] = None
        self._first_blocks.move_to_end(first)
        if len(self._first_blocks) > self._most_kept:
            self._first_blocks.popitem(last=False)


def _subtract(counter: Counter[Hash], key: Hash) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


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
