"""The replica of the prefix cache: beside the real pipeline, and what prompts read in it."""

import random
from itertools import count

import numpy as np
import openvino as ov
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.base import paths
from tts.build.manifest import read_engine_config
from tts.engines.generate_request import EngineLimits, GenerateRequest
from tts.engines.opening import opening_of
from tts.engines.pipeline import generation_config, open_pipeline
from tts.engines.prefix_cache import PrefixCache, extend_hashes, prefix_hashes

ids = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def hashes(tokens):
    return prefix_hashes(np.asarray(tokens, dtype=np.int64))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40), st.integers(1, 40))
def test_prefix_hashes_are_those_of_the_prefixes(tokens, cut):
    first = hashes(tokens[:cut])
    assert hashes(tokens)[: len(first)] == first
    extend_hashes(first, tokens[cut:])
    assert hashes(tokens) == first


def test_hashes_depend_on_values_order_and_length_also_of_very_long_prompts():
    different = [[0], [0, 0], [1, 0], [0, 1], [5] * 5000, [5] * 4999 + [6], [5] * 5001]
    assert len({hashes(tokens)[-1] for tokens in different}) == len(different)
    assert hashes([7] * 5000)[:10] == hashes([7] * 10)


class Slots:
    """What is in the slots of the blocks of a `PrefixCache`: of each token its whole prefix.

    Whatever else a sequence finds in a slot that it reads is a wrong result.
    """

    def __init__(self, cache, block_size):
        self.cache, self.size, self.slots = cache, block_size, {}

    def step(self):
        """Compute a step; the tickets to which a token is due."""
        running = self.cache._running
        before = {ticket: (s.computed, s.table[:]) for ticket, s in running.items()}
        self.cache.step()
        for ticket, sequence in running.items():
            computed, table = before[ticket]
            if computed >= sequence.prompt:  # copy on write
                copies = zip(table, sequence.table, strict=False)
                self.slots |= {id(new): self.block(old)[:] for old, new in copies if new is not old}
        for ticket, sequence in running.items():
            for place in range(before[ticket][0], sequence.computed):
                block = self.block(sequence.table[place // self.size])
                block[place % self.size] = sequence.names[place]
        for ticket, sequence in running.items():
            end = sequence.computed % self.size
            if before[ticket][0] < min(sequence.prompt, sequence.computed) and end:
                self.block(sequence.table[-1])[end:] = [0] * (self.size - end)
        due = []
        for ticket, sequence in running.items():
            read = [slot for block in sequence.table for slot in self.block(block)]
            assert read[: sequence.computed] == sequence.names[: sequence.computed]
            if sequence.computed == len(sequence.names):
                due.append(ticket)
        return due

    def block(self, block):
        return self.slots.setdefault(id(block), [None] * self.size)


class Pipeline:
    """A cache and its slots, driven as the engine drives them."""

    def __init__(self, *, blocks=1000, step_tokens=1000, size=4, is_guarded=True):
        self.cache = PrefixCache(blocks=blocks, block_size=size, step_tokens=step_tokens)
        self.slots = Slots(self.cache, size)
        self.waiting, self.live, self.reserved = {}, {}, 0
        self.blocks, self.size, self.steps, self.is_guarded = blocks, size, 0, is_guarded

    def enter(self):
        for ticket, (prompt, length) in list(self.waiting.items()):
            worst = -(-(len(prompt) + length) // self.size)
            if self.reserved + worst > self.blocks:
                break
            if not self.is_guarded or self.cache.may_enter(hashes(prompt)):
                del self.waiting[ticket]
                self.reserved += worst
                self.live[ticket] = list(prompt), len(prompt) + length, worst
                self.cache.enter(ticket, hashes(prompt))

    def step(self, sample=lambda: 9):
        self.steps += 1
        gone, outputs = set(), []
        for ticket in self.slots.step():
            tokens, length, worst = self.live[ticket]
            tokens.append(sample())
            self.cache.extend(ticket, tokens[self.cache._running[ticket].prompt :])
            if len(tokens) == length:
                gone.add(ticket)
                del self.live[ticket]
                self.reserved -= worst
                outputs.append(tokens)
        self.cache.leave(gone)
        return outputs

    def run(self, *prompts, length=3):
        self.waiting = {self.steps * 100 + n: (prompt, length) for n, prompt in enumerate(prompts)}
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


@settings(max_examples=amount(75, 300), deadline=None)
@given(searches())
def test_everyone_gets_in_and_reads_only_what_belongs_to_it(case):
    roots, grown, blocks, step_tokens, seed = case
    pipeline = Pipeline(blocks=blocks, step_tokens=step_tokens)
    rng, known, tickets = random.Random(seed), [*roots], count()
    arriving = [(root, [], 1, 3, 0) for root in roots] + grown
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
    cache = pipeline.cache
    assert not cache._long
    assert not any(
        block.writers or block.holders for block in [*cache._free, *cache._kept.values()]
    )
    assert len(cache._free) + len(cache._kept) == blocks
    assert len(cache._oldest) <= 4 * blocks


@pytest.mark.parametrize(
    ("step_tokens", "first", "length", "prompts"),
    [
        # prompts that part within a kept block
        (1000, [1, 2], 1, ([1, 2, 9, 5], [1, 2, 9, 6])),
        # equal ones of which one is cut: its block is padded with zeros where others have tokens
        (3, [1, 2, 3, 4, 5], 2, [[1, 2, 3, 4, 5, 9, 9, 6]] * 2),
    ],
)
def test_prompts_that_do_not_wait_read_what_belongs_to_others(step_tokens, first, length, prompts):
    """So the property above says something."""
    Pipeline(step_tokens=step_tokens).run(first, length=length).run(*prompts)
    open_one = Pipeline(step_tokens=step_tokens, is_guarded=False).run(first, length=length)
    with pytest.raises(AssertionError):
        open_one.run(*prompts)


@pytest.mark.parametrize(
    ("step_tokens", "prompts", "entered"),
    [
        (1000, [[1, 2, 9]] * 8, 8),
        (4, [[1, 2, 9, 9, 9]] * 8, 1),  # may not be computed whole in one step
        (1000, [[ticket, 1, 2] for ticket in range(50)], 50),  # no common prefix
        (1000, [[*range(9, 89)]] * 8, 1),  # the others wait for what the first computes
        (1000, [[1, 2, 8], [1, 2, 9], [1, 7], [5]], 3),  # the second takes what the first has
    ],
)
def test_only_who_would_write_into_the_block_of_another_waits(step_tokens, prompts, entered):
    pipeline = Pipeline(step_tokens=step_tokens)
    pipeline.run([1, 2], length=1)  # leaves its prompt behind in the cache
    pipeline.waiting = {ticket: (prompt, 3) for ticket, prompt in enumerate(prompts)}
    pipeline.enter()
    assert len(pipeline.live) == entered
    pipeline.step()
    pipeline.enter()  # what the others waited for is gone, or computed
    assert step_tokens < 1000 or not pipeline.waiting


def test_a_prompt_waits_for_a_block_that_has_its_name_and_not_all_of_its_content():
    pipeline = Pipeline(step_tokens=3)
    pipeline.waiting = {0: (list(range(9)), 1)}
    pipeline.enter()
    pipeline.step()
    pipeline.waiting = {1: ([0, 1, 2, 3, 7], 1)}
    pipeline.enter()
    assert pipeline.waiting
    pipeline.step()
    pipeline.enter()
    assert not pipeline.waiting


def test_prompts_go_past_the_partly_filled_block_of_one_whose_whole_block_they_find():
    pipeline = Pipeline()
    for prompt in ([1, 2], [1, 2, 3, 4, 5], [1, 2]):
        pipeline.run(prompt, length=1)
    prompts = [[1, 2, 7], [1, 2, 3, 4, 6], [1, 2, 3, 4, 7]]
    pipeline.waiting = {ticket: (prompt, 1) for ticket, prompt in enumerate(prompts)}
    pipeline.enter()
    assert not pipeline.waiting


@pytest.mark.parametrize("seed", sorted({23, 196, *range(20, amount(23, 80))}))
def test_the_replica_does_what_the_pipeline_does(pair, seed):
    """Both hold as many blocks after each step, and give each token in the same step.

    A step computes few tokens, so that it shows how many a prompt found in the cache, and the pool
    is small, so that blocks are overwritten all the time.
    """
    folder, rng = paths.engine_dir(pair.name, "generator"), random.Random(seed)
    config, blocks, step_tokens = read_engine_config(folder), *rng.choice(SIZES)
    limits = EngineLimits(128, 256, step_tokens, 32, blocks, 8)
    pipeline = open_pipeline(folder, config, limits, 1)
    cache = PrefixCache(blocks=blocks, block_size=32, step_tokens=step_tokens)
    live, sizes, stopped, tickets = {}, {}, set(), count()
    known = [[rng.randrange(5, 8) for _ in range(rng.randint(1, 70))] for _ in range(3)]
    while len(known) < 80 or sizes:
        if len(known) < 80 and rng.random() < 0.5:
            prompt = rng.choice(known[-12:])[: rng.choice([130, 130, 64, 33])]
            prompt = prompt + [rng.randrange(5, 8) for _ in range(rng.choice([0, 0, 1, 3, 20, 40]))]
            prompt, length = np.asarray(prompt[:130], np.int64), rng.choice([1, 1, 2, 8, 14])
            size = -(-(len(prompt) + length) // 32)
            for seed in [rng.randrange(10**6) for _ in range(rng.choice([1, 1, 3]))]:
                if sum(sizes.values()) + size <= blocks:
                    ticket = next(tickets)
                    request = GenerateRequest(prompt, length, top_k=2, seed=seed)
                    form = generation_config(request, log_probs=False)
                    handle = pipeline.add_request(ticket, ov.Tensor(prompt.reshape(1, -1)), form)
                    cache.enter(ticket, prefix_hashes(prompt))
                    live[ticket], sizes[ticket] = (prompt, [], handle, length), size
        if not sizes:
            continue
        pipeline.step()
        cache.step(stopped)
        assert cache.in_use == round(pipeline.get_metrics().cache_usage / 100 * blocks)
        gone, stopped = stopped, set()
        for ticket, (prompt, output, handle, length) in list(live.items()):
            sequence = cache._running[ticket]
            is_due = sequence.computed == len(sequence.names)
            assert handle.can_read() == is_due
            if is_due:
                output += next(iter(handle.read().values())).generated_ids
                cache.extend(ticket, output)
            if len(output) == length:
                gone.add(ticket)
            elif output and rng.random() < 0.07:
                handle.stop()
                stopped.add(ticket)
            if ticket in gone | stopped:
                known.append([*prompt.tolist(), *output])
                del live[ticket]
        cache.leave(gone)
        for ticket in gone:
            del sizes[ticket]
    assert cache._overwritten or blocks > 20


SIZES = [(9, 2), (12, 5), (20, 9), (60, 3), (9, 40), (12, 2)]
"""Blocks of a pool, and tokens of a step."""


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


@pytest.mark.parametrize("blocks", [64, 20])
@pytest.mark.parametrize("role", ["generator", "verifier"])
def test_requests_that_share_prefixes_get_what_they_get_alone(open_host, role, blocks):
    """Also with a pool in which most of what is kept is overwritten before it is wanted again."""
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
    shared = open_host(role, max_active=8, blocks=blocks)
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


def test_an_engine_that_does_not_do_as_its_replica_reuses_nothing_more(open_host, monkeypatch):
    runner, plain = open_host("verifier"), open_host("verifier", kv_reuse=False)
    request = GenerateRequest(np.arange(5, 60), 1, return_generation_logits=True)
    monkeypatch.setattr(PrefixCache, "step", lambda self, stopped: None)
    (failed,) = runner.run(request)
    assert "prefix cache" in failed.error
    assert runner.run(request) == plain.run(request)


def ask(pipeline, prompt, generated=()):
    """A request from its beginning to its end; whether it missed what had been overwritten."""
    before = pipeline.cache.missed
    tokens = iter(generated)
    pipeline.waiting = {pipeline.steps: (list(prompt), max(1, len(generated)))}
    pipeline.enter()
    while pipeline.live:
        pipeline.step(lambda: next(tokens, 9))
    return pipeline.cache.missed > before


def test_a_prefix_that_was_overwritten_is_missed_once_it_is_asked_for():
    pipeline = Pipeline(blocks=4)
    question, step = list(range(6)), [10, 11, 12, 13, 14]
    assert not ask(pipeline, question, step)
    for other in (100, 200):  # no room is left, but nobody comes back to what is dropped for it
        assert not ask(pipeline, range(other, other + 8), [1])
    assert ask(pipeline, [*question, *step], [30])
    assert not ask(pipeline, [*question, *step], [40])


def test_what_is_remembered_is_bounded():
    pipeline = Pipeline(blocks=4)
    for start in range(0, 1000, 10):
        ask(pipeline, range(start, start + 9), [1])
    assert not ask(pipeline, range(9), [1])  # overwritten so long ago that it is new


def test_without_chunked_context_an_engine_reuses_nothing(pair):
    changes = {"chunked_context": False, "max_num_tokens": 256}
    generator = pair.generator.model_copy(update=changes)
    assert opening_of(pair, "generator").limits.kv_reuse
    whole = pair.model_copy(update={"generator": generator})
    assert not opening_of(whole, "generator").limits.kv_reuse
