"""The paged cache of all sizes in one pass, against a cache that is simulated block by block."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.paged_cache import TimedRequest, Use, cache_curve, curve_of_uses, uses_in_time


class Reference:
    """A radix tree of blocks by the letter: look up, hold, evict the oldest leaf, insert."""

    def __init__(self, blocks):
        self.blocks, self.kept, self.seen = blocks, {}, set()
        self.lookups = self.hits = self.compulsory = self.thrashed = self.evictions = 0
        self._clock = count()

    def use(self, path, looked_up):
        found = 0
        while found < len(path) and path[: found + 1] in self.kept:
            found += 1
        if looked_up:
            self.lookups += len(path)
            self.hits += found
            for depth in range(found, len(path)):
                if path[: depth + 1] in self.seen:
                    self.thrashed += 1
                else:
                    self.compulsory += 1
        prefixes = [path[: depth + 1] for depth in range(len(path))]
        for prefix in prefixes[found:]:
            if len(self.kept) == self.blocks:
                self.evict(set(prefixes))
            self.kept[prefix] = 0
            self.seen.add(prefix)
        now = next(self._clock)
        for prefix in prefixes:
            self.kept[prefix] = now

    def evict(self, held):
        inner = {prefix[:-1] for prefix in self.kept}
        leaves = [prefix for prefix in self.kept if prefix not in inner and prefix not in held]
        # of several that were used last together only the deepest is a leaf
        del self.kept[min(leaves, key=self.kept.get)]
        self.evictions += 1


PATHS = st.lists(st.integers(0, 2), max_size=5).map(tuple)
USES = st.lists(st.tuples(PATHS, st.booleans()), max_size=40)


def numbered(uses):
    """The same uses with a number for each block."""
    numbers = {}
    for path, looked_up in uses:
        prefixes = [path[: depth + 1] for depth in range(len(path))]
        blocks = tuple(numbers.setdefault(prefix, len(numbers)) for prefix in prefixes)
        yield Use(blocks, looked_up)


@given(uses=USES, more=st.integers(0, 130))
def test_one_pass_equals_a_cache_that_is_simulated_for_each_size(uses, more):
    curve = curve_of_uses(numbered(uses))
    assert curve.least == max((len(path) for path, _ in uses), default=0)
    size = curve.least + more
    reference = Reference(size)
    for path, looked_up in uses:
        reference.use(path, looked_up)
    at = curve.at(size)
    assert at.lookups == reference.lookups
    assert at.hits == reference.hits
    assert at.compulsory_misses == reference.compulsory
    assert at.thrashed == reference.thrashed
    assert at.evictions == reference.evictions
    assert curve.distinct == len(reference.seen)


def test_a_pool_that_the_largest_request_does_not_fit_is_refused():
    curve = curve_of_uses([Use((0, 1, 2), True)])
    assert curve.at(3).compulsory_misses == 3
    with pytest.raises(ValueError, match="3 blocks does not fit a pool of 2"):
        curve.at(2)


def ids(*tokens):
    return np.array(tokens, np.int32)


def test_blocks_are_whole_and_the_last_token_of_a_prompt_is_always_computed():
    prompt, other = ids(1, 2, 3, 4), ids(1, 2, 3, 4, 5)
    requests = [
        TimedRequest(0.0, 1.0, prompt, ids(9, 9, 9)),
        TimedRequest(2.0, 3.0, prompt, ids(8)),
        TimedRequest(4.0, 5.0, other, ids()),
    ]
    uses = list(uses_in_time(requests, 2))
    assert [len(use.path) for use in uses] == [1, 3, 1, 2, 2, 2]
    assert [use.looked_up for use in uses] == [True, False] * 3
    curve = cache_curve(requests, 2)
    assert curve.lookups == 4
    assert (curve.at(9).hits, curve.at(9).compulsory_misses) == (3, 1)


def test_equal_tokens_after_different_ones_are_different_blocks():
    requests = [
        TimedRequest(0.0, 1.0, ids(1, 1, 5, 5, 0), ids()),
        TimedRequest(2.0, 3.0, ids(2, 2, 5, 5, 0), ids()),
    ]
    assert cache_curve(requests, 2).at(99).hits == 0


def test_requests_are_taken_in_the_order_of_time_not_of_the_log():
    first = TimedRequest(0.0, 9.0, ids(1, 1, 0), ids())
    second = TimedRequest(1.0, 2.0, ids(1, 1, 0), ids())
    assert cache_curve([second, first], 2).at(9).hits == 1
    assert list(uses_in_time([second, first], 2)) == list(uses_in_time([first, second], 2))


def test_no_requests_have_no_rates():
    at = cache_curve([], 32).at(0)
    assert at.hit_rate is at.thrashing is None


def test_thrashing_is_the_share_of_lookups_that_miss_what_had_been_there():
    a, b = Use((0, 1), True), Use((2, 3), True)
    curve = curve_of_uses([a, b, a, b, a])
    small, large = curve.at(2), curve.at(4)
    assert (small.hit_rate, small.thrashing, small.evictions) == (0.0, 0.6, 8)
    assert (large.hit_rate, large.thrashing, large.evictions) == (0.6, 0.0, 0)
