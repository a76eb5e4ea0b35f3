"""What a pool is taken to keep of prefixes, and what it dropped too early."""

import numpy as np

from tts.engines.prefix_guard import KeptPrefixes, extend_hashes, prefix_hashes


def ask(kept, prompt, generated=()):
    """A request from its beginning to its end; whether it missed what had been dropped."""
    before = kept.missed
    hashes = prefix_hashes(np.asarray(prompt, np.int64))
    kept.enter(hashes)
    kept.release(extend_hashes(hashes, generated))
    return kept.missed > before


def test_a_prefix_that_was_dropped_is_missed_once_it_is_asked_for():
    kept = KeptPrefixes(blocks=4, block_size=4)
    question, step = list(range(6)), [10, 11, 12, 13, 14]
    assert not ask(kept, question, step)
    assert not ask(kept, [*question, *step], [20, 21])  # 3 whole blocks and a part of one
    for other in (100, 200):  # no room is left, but nobody comes back to what is dropped for it
        assert not ask(kept, range(other, other + 8), [1])
    assert ask(kept, [*question, *step], [30])
    assert not ask(kept, [*question, *step], [40])


def test_of_a_path_the_last_block_is_dropped_first():
    kept = KeptPrefixes(blocks=3, block_size=4)
    path = list(range(13))
    ask(kept, path)
    ask(kept, range(100, 104), [1])
    assert not ask(kept, path[:4])
    assert ask(kept, path)


def test_what_was_used_last_is_kept():
    kept = KeptPrefixes(blocks=3, block_size=4)
    first, second = range(9), range(100, 105)
    for prompt in (first, second, first, range(200, 205)):
        assert not ask(kept, prompt)
    assert not ask(kept, first)
    assert ask(kept, second)


def test_partly_filled_blocks_are_taken_over_and_not_missed():
    kept = KeptPrefixes(blocks=8, block_size=4)
    ask(kept, [1, 2], [3, 4, 5])
    for token in range(10, 20):  # siblings: one takes the block over, the others compute it
        assert not ask(kept, [1, 2, 3, 4, 5], [token])


def test_what_is_remembered_is_bounded():
    kept = KeptPrefixes(blocks=2, block_size=4)
    for start in range(0, 1000, 10):
        ask(kept, range(start, start + 9), [1])
    assert not ask(kept, range(9), [1])  # dropped so long ago that it is new
