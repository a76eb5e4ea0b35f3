"""The simulated KV cache against brute force: what is reused; the pool is never exceeded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tts.engines.simulated import PagedCache

SIZE = 2
BLOCKS = 8
sequences = st.lists(st.integers(0, 1), min_size=1, max_size=9)


def ids(tokens):
    return np.asarray(tokens, dtype=np.int32)


def use(cache, tokens):
    """A request from its beginning to its end; how much of it was there."""
    lease = cache.open(ids(tokens), len(tokens))
    cache.keep(lease, ids(tokens))
    cache.close(lease)
    return lease.reused_tokens


def common_blocks(tokens, other):
    """Whole blocks at which both begin."""
    count = 0
    while ((end := (count + 1) * SIZE) <= min(len(tokens), len(other))) and tokens[:end] == other[
        :end
    ]:
        count += 1
    return count


def best_match(tokens, kept):
    """Tokens of the longest whole-block prefix among `kept`; the last token is never reused."""
    found = max((common_blocks(tokens[:-1], other) for other in kept), default=0)
    return found * SIZE


@given(kept=st.lists(sequences, max_size=8), wanted=sequences)
def test_reuses_the_longest_prefix_of_whole_blocks(kept, wanted):
    cache = PagedCache(1000, SIZE)
    for tokens in kept:
        use(cache, tokens)
    assert cache.open(ids(wanted), len(wanted)).reused_tokens == best_match(wanted, kept)


@given(kept=st.lists(sequences, max_size=8))
def test_a_block_is_counted_once_however_many_share_it(kept):
    cache = PagedCache(1000, SIZE)
    unique = {tuple(tokens[:end]) for tokens in kept for end in range(SIZE, len(tokens) + 1, SIZE)}
    leases = [cache.open(ids(tokens), len(tokens)) for tokens in kept]
    for tokens, lease in zip(kept, leases, strict=True):
        cache.keep(lease, ids(tokens))
    loose = sum(len(tokens) % SIZE > 0 for tokens in kept)
    assert cache.unavailable == cache.occupied == len(unique) + loose
    for lease in leases:
        cache.close(lease)
    assert (cache.unavailable, cache.occupied) == (0, len(unique))


def test_without_reuse_nothing_is_found_and_nothing_stays():
    cache = PagedCache(10, SIZE, reuse=False)
    for _ in range(2):
        lease = cache.open(ids([1, 2, 3, 4, 5]), 6)
        cache.keep(lease, ids([1, 2, 3, 4, 5]))
        assert (lease.reused_tokens, cache.occupied) == (0, 3)
        cache.close(lease)
    assert cache.occupied == 0


def test_the_least_recently_used_prefix_goes_first_and_leaves_before_their_stem():
    cache = PagedCache(4, SIZE)
    for tokens in ([0, 0, 1, 1], [0, 0, 2, 2]):  # a stem and two leaves
        use(cache, tokens)
    cache.close(cache.open(ids([9, 9]), 4))  # one block must go

    def reused(tokens):
        lease = cache.open(ids(tokens), len(tokens))
        cache.close(lease)
        return lease.reused_tokens

    assert reused([0, 0, 2, 2, 7]) == 4
    assert reused([0, 0, 1, 1, 7]) == 2, "the older leaf is gone, its stem is not"


class Books(RuleBasedStateMachine):
    """Any order of admissions, keeps and ends in a small pool."""

    def __init__(self):
        super().__init__()
        self.cache = PagedCache(BLOCKS, SIZE)
        self.open = []
        self.kept = []

    @rule(tokens=sequences, more=st.integers(0, 5))
    def admit(self, tokens, more):
        held = self.cache.unavailable
        lease = self.cache.open(ids(tokens), len(tokens) + more)
        needed = self.cache.blocks_for(len(tokens) + more)
        if lease is None:
            assert self.cache.unavailable == held, "a refusal changes nothing"
            assert held + needed > BLOCKS
            return
        assert lease.reused_tokens <= best_match(tokens, self.kept)
        assert len(lease.path) + lease.own == needed
        self.open.append((lease, tokens, more))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def keep(self, data):
        lease, tokens, more = data.draw(st.sampled_from(self.open))
        whole = tokens + [0] * data.draw(st.integers(0, more))
        if len(whole) // SIZE >= len(lease.path) and whole[: len(tokens)] == tokens:
            already = [block.key for block in lease.path]
            if already == [
                ids(whole[place * SIZE : (place + 1) * SIZE]).tobytes()
                for place in range(len(already))
            ]:
                self.cache.keep(lease, ids(whole))
                self.kept.append(whole)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data):
        place = data.draw(st.integers(0, len(self.open) - 1))
        self.cache.close(self.open.pop(place)[0])

    @invariant()
    def the_pool_is_never_exceeded(self):
        assert 0 <= self.cache.unavailable <= self.cache.occupied <= BLOCKS

    @invariant()
    def what_is_held_is_what_open_requests_have(self):
        paths = {id(block) for lease, _, _ in self.open for block in lease.path}
        assert self.cache.unavailable == len(paths) + sum(lease.own for lease, _, _ in self.open)


TestBooks = Books.TestCase


@pytest.mark.parametrize(("n", "fresh", "cached"), [(16, 81_200, 10_550), (64, 324_800, 41_750)])
def test_verifier_tokens_of_independent_chains(n, fresh, cached):
    """A question of 150 tokens, then 10 steps of 65 each: what is computed to score every step."""

    def computed(cache):
        total = 0
        for depth in range(1, 11):
            for chain in range(n):
                steps = np.arange(depth * 65, dtype=np.int32) + 1000 * (chain + 1)
                dialogue = np.concatenate((np.arange(150, dtype=np.int32), steps))
                total += len(dialogue) - use(cache, dialogue)
        return total

    assert computed(PagedCache(10**6, 1, reuse=False)) == fresh
    assert computed(PagedCache(10**6, 1)) == cached
    # only whole blocks are reused: each of a chain's 10 requests computes part of one again
    assert cached < computed(PagedCache(10**6, 32)) < cached + n * 10 * 32
