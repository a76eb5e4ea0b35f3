"""The guard of the prefix cache: its books, and a real engine whose requests share prefixes."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.engines.generate_request import GenerateRequest
from tts.engines.prefix_guard import PrefixGuard, extend_hashes, prefix_hashes

ids = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def hashes(tokens):
    return prefix_hashes(np.asarray(tokens, dtype=np.int64))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40), st.integers(1, 40))
def test_prefix_hashes_are_those_of_the_prefixes(tokens, cut):
    assert hashes(tokens)[: min(cut, len(tokens))] == hashes(tokens[:cut])


def test_hashes_depend_on_values_order_and_length_also_of_very_long_prompts():
    different = [[0], [0, 0], [1, 0], [0, 1], [5] * 5000, [5] * 4999 + [6], [5] * 5001]
    assert len({hashes(tokens)[-1] for tokens in different}) == len(different)
    assert hashes([7] * 5000)[:10] == hashes([7] * 10)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9), st.lists(st.integers(0, 99)))
def test_extended_hashes_are_those_of_prompt_and_output(prompt, generated):
    assert extend_hashes(hashes(prompt), generated) == hashes(prompt + generated)


class Pipeline:
    """The requests in flight, as the guard's caller would drive them."""

    def __init__(self):
        self.guard = PrefixGuard(blocks=1000, block_size=4)
        self.waiting, self.live, self.age = {}, {}, {}

    def enter(self):
        for ticket, tokens in list(self.waiting.items()):
            if self.guard.enter(ticket, hashes(tokens)):
                self.live[ticket] = self.waiting.pop(ticket)
                self.age[ticket] = 0

    def step(self, leave):
        self.guard.stepped()
        for ticket in list(self.live):
            self.age[ticket] += 1
            if self.age[ticket] > 1:
                self.guard.moved_on(ticket)
            if leave(self.age[ticket]):
                tokens = self.live.pop(ticket)
                generated = [9] * self.age.pop(ticket)
                self.guard.left(ticket, extend_hashes(hashes(tokens), generated))


@settings(max_examples=300, deadline=None)
@given(st.lists(ids, min_size=1, max_size=12), st.integers(0, 10**6))
def test_everyone_gets_in_and_no_two_hold_what_one_may_write(prompts, seed):
    rng = random.Random(seed)
    pipeline = Pipeline()
    arriving = list(enumerate(prompts))
    for _ in range(20 * len(prompts) + 20):
        while arriving and rng.random() < 0.5:
            ticket, tokens = arriving.pop(0)
            pipeline.waiting[ticket] = tokens
        pipeline.enter()
        live = list(pipeline.live.items())
        for ticket, tokens in live:
            for other, longer in live:
                if len(longer) > len(tokens) and longer[: len(tokens)] == tokens:
                    # the longer one may be there only if it came before the shorter
                    assert other in pipeline.live
                    assert pipeline.age[other] >= pipeline.age[ticket]
        pipeline.step(lambda age: rng.random() < 0.4 or age > 6)
    assert not arriving
    assert not pipeline.waiting, "a request waits for ever"
    assert not pipeline.guard._claimed
    assert not pipeline.guard._young
    assert not pipeline.guard._prompts
    assert not pipeline.guard._blockers


def test_a_request_that_gives_up_waiting_is_forgotten():
    guard = PrefixGuard(blocks=8, block_size=4)
    assert guard.enter(0, hashes([1, 2]))
    assert not guard.enter(1, hashes([1, 2, 3]))
    assert guard._blockers
    guard.left(1)
    assert not guard._blockers


def test_samples_of_one_prompt_follow_their_leader_together():
    pipeline = Pipeline()
    pipeline.waiting[0] = [1, 2]
    pipeline.enter()
    pipeline.step(lambda age: True)  # leaves its prompt behind in the cache
    pipeline.waiting.update({ticket: [1, 2] for ticket in range(1, 9)})
    pipeline.enter()
    assert list(pipeline.live) == [1]
    for _ in range(2):
        pipeline.step(lambda age: False)
    pipeline.enter()
    assert sorted(pipeline.live) == list(range(1, 9))


def test_requests_without_a_common_prefix_never_wait():
    pipeline = Pipeline()
    pipeline.waiting.update({ticket: [ticket, 1, 2] for ticket in range(50)})
    pipeline.enter()
    assert len(pipeline.live) == 50


def test_the_books_stay_small():
    guard = PrefixGuard(blocks=2, block_size=4)
    for ticket in range(100):
        assert guard.enter(ticket, hashes([ticket]))
        guard.stepped()
        guard.left(ticket, extend_hashes(hashes([ticket]), [1]))
    assert len(guard._contents) <= 8


def family(rng, depth, width):
    """Prompts of a search: every one continues another, at any place in a block."""
    prompts = [rng.integers(5, 128, 20)]
    for _ in range(depth):
        grown = [
            np.concatenate((parent, rng.integers(5, 128, rng.integers(1, 20))))
            for parent in prompts[-width:]
            for _ in range(3)
        ]
        prompts += grown
    return [prompt for prompt in prompts if len(prompt) < 200]


@pytest.mark.parametrize("role", ["generator", "verifier"])
def test_requests_that_share_prefixes_get_what_they_get_alone(open_host, role):
    rng = np.random.default_rng(1)
    prompts = [prompt for _ in range(3) for prompt in family(rng, depth=5, width=2)]
    verifying = role == "verifier"
    requests = [
        GenerateRequest(prompt, 1, return_generation_logits=True)
        if verifying
        else GenerateRequest(prompt, 12, top_p=1.0, seed=sample)
        for prompt in prompts
        for sample in range(1 if verifying else 2)
    ]
    plain = open_host(role, kv_reuse=False, max_active=1)
    shared = open_host(role, max_active=8)
    expected, got = plain.run(*requests), shared.run(*requests)
    if verifying:
        difference = [
            abs(a - b)
            for one, two in zip(expected, got, strict=True)
            for a, b in zip(one.label_logits, two.label_logits, strict=True)
        ]
        assert max(difference) < 1e-4
    else:
        assert [r.token_ids for r in got] == [r.token_ids for r in expected]


def test_a_shorter_content_is_still_there_when_a_longer_one_may_have_been_taken_over():
    """Two kept contents, one the beginning of the other, in two blocks: only one is taken over."""
    guard = PrefixGuard(blocks=64, block_size=32)

    def hashes(*ids):
        return prefix_hashes(np.asarray(ids, dtype=np.int64))

    short, long = tuple(range(40)), tuple(range(45))
    for ticket, content in enumerate((short, long)):
        assert guard.enter(ticket, hashes(*content))
        guard.stepped()
        guard.left(ticket, hashes(*content))
    filled = hashes(*long, *range(100, 140))
    assert guard.enter(2, filled)
    guard.stepped()
    guard.left(2, filled)
    assert guard.enter(3, hashes(*short, 7, 7, 7))
    assert not guard.enter(4, hashes(*short, 8, 8, 8)), "both could take the short one's block over"


@pytest.mark.parametrize(("length", "kept"), [(32, True), (33, False), (100, False)])
def test_a_content_is_forgotten_once_a_prompt_has_filled_its_block(length, kept):
    """A verifier's request, which decodes nothing: what it took over has a longer content's hash.

    The block in which 20 tokens end is the first; one token beyond it begins the second.
    """
    guard = PrefixGuard(blocks=64, block_size=32)
    content = [1] * 20
    assert guard.enter(0, hashes(content))
    guard.stepped()
    guard.left(0, hashes(content))
    filled = content + [2] * (length - len(content))
    assert guard.enter(1, hashes(filled))
    guard.stepped()
    guard.left(1, hashes(filled))
    assert guard.enter(2, hashes([*content, 7, 7]))
    assert guard.enter(3, hashes([*content, 8, 8])) is not kept, "both could take it over"


def test_a_content_stays_in_the_books_if_a_full_block_of_others_may_have_been_used_instead():
    """The third prompt continues the second, but also the first, whose full block fits further."""
    guard = PrefixGuard(blocks=64, block_size=4)
    part = [1, 2, 3, 4, 5, 6]
    for ticket, content in enumerate(([*part, 7, 8, 9], part, [*part, 7, 8, 10])):
        assert guard.enter(ticket, hashes(content))
        guard.stepped()
        guard.left(ticket, hashes(content))
    assert guard.enter(3, hashes([*part, 11]))
    assert not guard.enter(4, hashes([*part, 12])), "both could take the block of `part` over"


def test_a_short_prompt_holds_back_only_the_first_that_begins_with_it():
    """Such as the one token of a probe, for a model whose prompts all begin with that token."""
    guard = PrefixGuard(blocks=64, block_size=4)
    assert guard.enter(0, hashes([0]))
    guard.stepped()
    guard.left(0, hashes([0, 9]))
    prompts = [[0, number, 2, 3, 4, 5] for number in range(1, 6)]
    assert guard.enter(1, hashes(prompts[0]))
    assert not guard.enter(2, hashes(prompts[1]))
    guard.stepped()
    guard.moved_on(1)
    assert all(guard.enter(ticket, hashes(prompts[ticket - 1])) for ticket in range(2, 6))


def test_scores_are_right_where_one_prompt_reuses_the_full_block_of_another(open_host):
    """The cache holds a full second block and a part of one; three prompts continue the part."""
    verifier, alone = open_host("verifier"), open_host("verifier", kv_reuse=False, max_active=1)
    rng = np.random.default_rng(7)
    part = rng.integers(5, 128, 45)

    def after(prefix, count):
        return np.concatenate((prefix, rng.integers(5, 128, count)))

    def scored(host, *prompts):
        requests = [GenerateRequest(p, 1, return_generation_logits=True) for p in prompts]
        return [response.label_logits for response in host.run(*requests)]

    long = after(part, 40)
    for prompt in (long, part, after(long[:79], 9)):
        scored(verifier, prompt)
    siblings = [after(part, 12 + count) for count in range(6)]
    expected, got = scored(alone, *siblings), scored(verifier, *siblings)
    np.testing.assert_allclose(got, expected, atol=1e-4)
