"""The guard of the prefix cache: its books, on a model of the cache, and on a real engine; what a
pool is taken to keep.
"""

import random
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.engines.prefix_cache_model import PrefixCacheModel

from tts.engines.generate_request import GenerateRequest
from tts.engines.prefix_guard import KeptPrefixes, PrefixGuard, extend_hashes, prefix_hashes

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


def visit(guard, ticket, content, generated=(), *, started=False):
    """A request from its beginning to its end."""
    assert guard.enter(ticket, hashes(content))
    guard.stepped()
    if started:
        guard.started(ticket)
    guard.release(ticket, hashes([*content, *generated]))


class Open:
    """A guard that lets everyone in."""

    def enter(self, ticket, hashes):
        return True

    def stepped(self):
        pass

    started = moved_on = release = lambda self, *arguments: None


class Pipeline:
    """A guard and the cache it guards, driven as the engine host drives them."""

    def __init__(self, guard=None, *, blocks=1000, step_tokens=1000):
        sizes = {"blocks": blocks, "block_size": 4, "step_tokens": step_tokens}
        self.guard = guard or PrefixGuard(**sizes)
        self.cache = PrefixCacheModel(**sizes)
        self.waiting, self.live, self.reserved = {}, {}, 0
        self.blocks, self.steps = blocks, 0

    def enter(self):
        for ticket, (prompt, length) in list(self.waiting.items()):
            worst = -(-(len(prompt) + length) // 4)
            if self.reserved + worst > self.blocks:
                break
            if self.guard.enter(ticket, hashes(prompt)):
                del self.waiting[ticket]
                self.reserved += worst
                self.live[ticket] = self.cache.add(prompt), length, worst

    def step(self, sample=lambda: 9):
        self.steps += 1
        due = self.cache.step()
        self.guard.stepped()
        outputs = []
        for ticket, (sequence, length, worst) in list(self.live.items()):
            if sequence not in due:
                continue
            known = len(sequence.tokens) - sequence.prompt
            (self.guard.moved_on if known else self.guard.started)(ticket)
            sequence.tokens.append(sample())
            if known + 1 == length:
                self.cache.leave(sequence)
                del self.live[ticket]
                self.reserved -= worst
                self.guard.release(ticket, hashes(sequence.tokens))
                outputs.append(sequence.tokens)
        return outputs

    def run(self, *prompts, length=3):
        self.waiting = {ticket: (prompt, length) for ticket, prompt in enumerate(prompts)}
        while self.waiting or self.live:
            self.enter()
            self.step()
        return self


@st.composite
def searches(draw):
    """How a search goes on from what it has: which outputs, with what after them, how often."""
    growth = st.tuples(
        st.integers(0, 30),
        st.lists(st.integers(0, 2), max_size=6),
        st.integers(1, 4),
        st.integers(1, 6),
        st.integers(0, 3),
    )
    roots = draw(st.lists(ids, min_size=1, max_size=3))
    grown = draw(st.lists(growth, max_size=25))
    budget = draw(st.sampled_from([3, 5, 8, 20, 1000]))
    return roots, grown, draw(st.sampled_from([14, 20, 1000])), budget, draw(st.integers(0, 10**6))


def search(pipeline, case):
    """Let prompts arrive between steps, each the beginning of what is known and something new."""
    roots, grown, *_, seed = case
    rng = random.Random(seed)
    known, tickets = [*roots], count()
    arriving = [(root, [], 1, 3, 0) for root in roots] + [
        (index, tail, samples, length, cut) for index, tail, samples, length, cut in grown
    ]
    while arriving or pipeline.waiting or pipeline.live:
        while arriving and rng.random() < 0.7:
            base, tail, samples, length, cut = arriving.pop(0)
            if isinstance(base, int):
                base = known[base % len(known)]
            prompt = [*base[: max(1, len(base) - cut)], *tail][:40]
            for _ in range(samples):
                pipeline.waiting[next(tickets)] = prompt, length
        pipeline.enter()
        if pipeline.live:
            known += pipeline.step(lambda: rng.randrange(3))
        assert pipeline.steps < 2000, "a request waits for ever"
    return pipeline


@settings(max_examples=amount(75, 300), deadline=None)
@given(searches())
def test_everyone_gets_in_and_reads_only_what_belongs_to_it(case):
    pipeline = search(Pipeline(blocks=case[2], step_tokens=case[3]), case)
    assert not pipeline.cache.wrong
    guard = pipeline.guard
    assert not any((guard._claims, guard._young, guard._stems, guard._computing, guard._blockers))
    assert guard._load == 0


@pytest.mark.parametrize(
    ("step_tokens", "first", "length", "prompts"),
    [
        # prompts that part within a kept block
        (1000, [1, 2], 1, ([1, 2, 9, 5], [1, 2, 9, 6])),
        # equal ones of which one is cut: its block is padded with zeros where others have tokens
        (3, [1, 2, 3, 4, 5], 2, [[1, 2, 3, 4, 5, 9, 9, 6]] * 2),
    ],
)
def test_without_the_guard_the_model_of_the_cache_gives_wrong_results(
    step_tokens, first, length, prompts
):
    """So the property above says something."""
    for guard, wrong in ((Open(), True), (None, False)):
        pipeline = Pipeline(guard, step_tokens=step_tokens).run(first, length=length).run(*prompts)
        assert bool(pipeline.cache.wrong) == wrong


def test_a_request_that_gives_up_waiting_is_forgotten():
    guard = PrefixGuard(blocks=8, block_size=4, step_tokens=64)
    assert guard.enter(0, hashes([1, 2]))
    guard.stepped()
    assert not guard.enter(1, hashes([1, 2, 3]))
    assert guard._blockers
    guard.release(1)
    assert not guard._blockers


@pytest.mark.parametrize(
    ("step_tokens", "prompts", "entered"),
    [
        (1000, [[1, 2, 9]] * 8, 8),
        (4, [[1, 2, 9, 9, 9]] * 8, 1),  # may not be computed whole in one step
        (1000, [[ticket, 1, 2] for ticket in range(50)], 50),  # no common prefix
        (1000, [[*range(9, 89)]] * 8, 1),  # the others wait for what the first computes
    ],
)
def test_samples_of_one_prompt_enter_together_if_one_step_takes_them(step_tokens, prompts, entered):
    pipeline = Pipeline(step_tokens=step_tokens)
    pipeline.run([1, 2], length=1)  # leaves its prompt behind in the cache
    pipeline.waiting = {ticket: (prompt, 3) for ticket, prompt in enumerate(prompts)}
    pipeline.enter()
    assert len(pipeline.live) == entered


def test_a_prompt_that_continues_a_running_one_waits_only_until_that_is_computed():
    pipeline = Pipeline()
    pipeline.waiting = {0: ([1, 2], 9)}
    pipeline.enter()
    pipeline.waiting = {1: ([1, 2, 9, 5], 9), 2: ([1, 2, 9, 5], 9), 3: ([1, 2, 9, 6], 9)}
    pipeline.enter()
    assert list(pipeline.live) == [0, 1, 2], "nothing of the first is in the cache yet"
    pipeline.step()
    pipeline.enter()
    assert list(pipeline.live) == [0, 1, 2]


def test_the_books_stay_small():
    guard = PrefixGuard(blocks=2, block_size=4, step_tokens=64)
    for ticket in range(100):
        visit(guard, ticket, [ticket], [1])
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
    guard = PrefixGuard(blocks=64, block_size=32, step_tokens=64)
    short, long = range(40), range(45)
    for ticket, content in enumerate((short, long, [*long, *range(100, 140)])):
        visit(guard, ticket, content)
    assert guard.enter(3, hashes([*short, 7, 7, 7]))
    assert not guard.enter(4, hashes([*short, 8, 8, 8])), "both could take the short one's block"


@pytest.mark.parametrize(("length", "kept"), [(32, True), (33, False), (100, False)])
def test_a_content_is_forgotten_once_a_prompt_has_filled_its_block(length, kept):
    """A verifier's request, which decodes nothing: what it took over has a longer content's hash.

    The block in which 20 tokens end is the first; one token beyond it begins the second.
    """
    guard = PrefixGuard(blocks=64, block_size=32, step_tokens=64)
    content = [1] * 20
    visit(guard, 0, content)
    visit(guard, 1, content + [2] * (length - len(content)), started=True)
    assert guard.enter(2, hashes([*content, 7, 7]))
    assert guard.enter(3, hashes([*content, 8, 8])) is not kept, "both could take it over"


def test_a_content_stays_in_the_books_if_a_full_block_of_others_may_have_been_used_instead():
    """The third prompt continues the second, but also the first, whose full block fits further."""
    guard = PrefixGuard(blocks=64, block_size=4, step_tokens=64)
    part = [1, 2, 3, 4, 5, 6]
    for ticket, content in enumerate(([*part, 7, 8, 9], part, [*part, 7, 8, 10])):
        visit(guard, ticket, content)
    assert guard.enter(3, hashes([*part, 11]))
    assert not guard.enter(4, hashes([*part, 12])), "both could take the block of `part` over"


def test_a_short_prompt_holds_back_only_the_first_that_begins_with_it():
    """Such as the one token of a probe, for a model whose prompts all begin with that token."""
    guard = PrefixGuard(blocks=64, block_size=4, step_tokens=64)
    visit(guard, 0, [0], [9])
    prompts = [[0, number, 2, 3, 4, 5] for number in range(1, 6)]
    assert guard.enter(1, hashes(prompts[0]))
    assert not guard.enter(2, hashes(prompts[1]))
    guard.stepped()
    guard.started(1)
    assert all(guard.enter(ticket, hashes(prompts[ticket - 1])) for ticket in range(2, 6))


def test_prompts_that_begin_with_a_probes_token_are_computed_together(open_host):
    runner = open_host("verifier")
    (probe, *requests) = (
        GenerateRequest(np.asarray(prompt), 1, return_generation_logits=True)
        for prompt in ([5], *([5, number, *range(7, 39)] for number in range(50, 54)))
    )
    runner.run(probe)
    before = runner.host.statistics().iteration
    runner.run(*requests)
    assert runner.host.statistics().iteration - before == 2


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
