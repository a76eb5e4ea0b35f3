"""The simulated engine over random arrivals, and its KV cache against brute force."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.amounts import amount

from tts.base.errors import RequestError
from tts.engines.simulated import Affine, Gpus, PagedCache, SimulatedEngine, SimulatedRequest

STEP = Affine(1e-3, 1e-5, 1e-7, 1e-5)


def of_any(few, many):
    """So many seeds, from which the requests of a test are drawn."""
    examples = settings(max_examples=amount(few, many), deadline=None)
    return lambda test: examples(given(seed=st.integers(0, 10**9))(test))


def ids(tokens):
    return np.asarray(tokens, dtype=np.int32)


def request(rng, *, longest=20):
    prompt = [rng.randrange(2) for _ in range(rng.randint(1, 30))]
    answer = [rng.randrange(2) for _ in range(rng.randint(1, longest))]
    return SimulatedRequest(ids(prompt), ids(answer), longest)


def engine(*, blocks=40, batch=4, tokens=16, step_time=STEP):
    return SimulatedEngine(step_time, PagedCache(blocks, 4), batch, tokens)


def serve(gpu, arrivals):
    """Run the arrivals (time, engine, request) to the end: when each request was complete."""
    arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
    done = {}
    now = 0.0
    while True:
        due = [arrivals[0][0]] if arrivals else []
        due += [gpu.next_s()] if gpu.next_s() is not None else []
        if not due:
            return done
        now = max(now, min(due))
        while arrivals and arrivals[0][0] <= now:
            _, target, arrived = arrivals.pop(0)
            target.submit(arrived)
        for finished in gpu.run(now):
            assert finished not in done
            done[finished] = now


@of_any(25, 100)
def test_every_request_is_answered_once_and_every_token_counted(seed):
    rng = random.Random(seed)
    one = engine()
    arrivals = [(rng.random() * 0.1, one, request(rng)) for _ in range(30)]
    done = serve(Gpus([one]), arrivals)
    requests = [arrived for _, _, arrived in arrivals]
    totals = one.totals
    assert set(done) == set(requests)
    assert totals.generated_tokens == sum(len(r.answer) for r in requests)
    assert totals.computed_tokens + totals.reused_tokens == sum(len(r.prompt) for r in requests)
    assert (one.cache.unavailable, totals.wasted_tokens) == (0, 0)


@of_any(25, 100)
def test_batch_tokens_and_blocks_stay_within_their_limits(seed):
    rng = random.Random(seed)
    loads = []

    class Watch:
        def cost(self, load):
            loads.append(load)
            assert one.cache.occupied <= one.cache.blocks
            return STEP.cost(load)

    one = engine(step_time=Watch())
    serve(Gpus([one]), [(rng.random() * 0.1, one, request(rng)) for _ in range(30)])
    assert max(load.decodes + load.prefill_tokens for load in loads) <= 16
    assert max(load.decodes for load in loads) <= 4
    assert all(load.decode_context >= load.decodes for load in loads)


@of_any(12, 50)
def test_the_same_arrivals_give_the_same_times(seed):
    def times():
        rng = random.Random(seed)
        one = engine()
        arrivals = [(rng.random() * 0.1, one, request(rng)) for _ in range(20)]
        done = serve(Gpus([one]), arrivals)
        return [done[arrived] for _, _, arrived in arrivals]

    assert times() == times()


@settings(max_examples=amount(12, 50), deadline=None)
@given(seed=st.integers(0, 10**9), part=st.floats(0.01, 0.99))
def test_bursts_take_as_long_as_their_steps_one_by_one(seed, part):
    def times(disturb):
        rng = random.Random(seed)
        one = engine()
        gpu = Gpus([one])
        for _ in range(4):
            one.submit(request(rng))
        done, now = [], 0.0
        gpu.run(0.0)
        while (next_s := gpu.next_s()) is not None:
            if disturb:  # as if something had come in meanwhile
                one.disturbed = True
                gpu.run(now + part * (next_s - now))
                next_s = gpu.next_s()
            now = next_s
            done += [now] * len(gpu.run(now))
        return done

    assert times(disturb=False) == pytest.approx(times(disturb=True), rel=1e-3)


@of_any(25, 100)
def test_cancelled_requests_leave_nothing_behind(seed):
    rng = random.Random(seed)
    one = engine()
    gpu = Gpus([one])
    requests = [request(rng) for _ in range(12)]
    cancelled = set()
    for arrived in requests:
        one.submit(arrived)
    done, now = [], 0.0
    gpu.run(now)
    while (next_s := gpu.next_s()) is not None:
        if rng.random() < 0.3:
            victim = rng.choice(requests)
            cancelled.add(victim)
            one.cancel(victim)
            now = min(next_s, now + rng.random() * 1e-3)
        else:
            now = next_s
        done += gpu.run(now)
    assert set(requests) - cancelled <= set(done)
    assert len(done) == len(set(done))
    assert one.cache.unavailable == 0
    finished = sum(len(arrived.answer) for arrived in done)
    assert one.totals.generated_tokens == finished + one.totals.wasted_tokens


def test_a_prompt_is_computed_in_chunks_beside_those_that_generate():
    loads = []

    class Watch:
        def cost(self, load):
            loads.append((load.prefill_tokens, load.prefill_attention, load.cached_tokens))
            return STEP.cost(load)

    one = engine(tokens=8, step_time=Watch())
    one.submit(SimulatedRequest(ids([1] * 4), ids([1] * 9), 9))
    first = one.finish(one.plan())
    one.submit(SimulatedRequest(ids([2] * 20), ids([2]), 1))
    chunks = []
    while burst := one.plan():
        chunks.append([tokens for _, tokens in burst.chunks])
        first += one.finish(burst)
    assert chunks == [[7], [7], [6], []]
    # a chunk attends to all before it, and on average to half of itself
    whole, *parts = [(4, 4 * 2, 0), (7, 7 * 3.5, 0), (7, 7 * 10.5, 7), (6, 6 * 17, 14), (0, 0, 0)]
    assert loads == [whole, *parts]
    assert len(first) == 2


@pytest.mark.parametrize("sharing", ["time-sliced", "overlapped"])
def test_an_engine_is_busy_from_a_request_to_its_answer_and_not_between(sharing):
    one, other = engine(), engine()
    arrivals = [
        (start, one, SimulatedRequest(ids([1] * 9), ids([1] * 5), 5)) for start in (0.5, 2.0, 9.0)
    ]
    done = serve(Gpus([one, other], sharing), arrivals)
    took = sum(done[arrived] - start for start, _, arrived in arrivals)
    assert one.totals.busy_s == pytest.approx(took)
    assert other.totals.busy_s == 0.0


def test_a_request_that_can_never_start_is_refused():
    with pytest.raises(RequestError, match="41 KV blocks; the pool has 40"):
        engine().submit(SimulatedRequest(ids([1] * 160), ids([1]), 4))


@of_any(7, 30)
def test_two_engines_on_one_gpu_are_between_the_two_bounds(seed):
    class Bound:
        def __init__(self, compute, memory):
            self.compute, self.memory = compute, memory

        def cost(self, load):
            duration = STEP.cost(load).duration_s
            return type(STEP.cost(load))(duration, duration * self.compute, duration * self.memory)

    def wall(sharing):
        rng = random.Random(seed)
        one, two = engine(step_time=Bound(0.3, 1.0)), engine(step_time=Bound(1.0, 0.2))
        arrivals = [(0.0, rng.choice([one, two]), request(rng)) for _ in range(30)]
        if sharing == "apart":
            ends = [
                max(serve(Gpus([e]), [a for a in arrivals if a[1] is e]).values(), default=0.0)
                for e in (one, two)
            ]
        else:
            ends = [max(serve(Gpus([one, two], sharing), arrivals).values())]
        return ends

    apart = wall("apart")
    assert wall("time-sliced") == [pytest.approx(sum(apart), rel=1e-6)]
    (overlapped,) = wall("overlapped")
    assert max(apart) * (1 - 1e-9) <= overlapped <= 1.3 * sum(apart) / 2 + max(apart)
    assert overlapped <= sum(apart)


@pytest.mark.parametrize(("blocks", "gain"), [(40, (1.5, 10)), (400, (0.99, 1.01))])
def test_what_sibling_order_gains_fades_with_memory(blocks, gain):
    """Requests of 20 parents, 4 siblings each: siblings together, against parents in turn."""

    def wall(order):
        one = engine(blocks=blocks, batch=1, tokens=64)
        for parent, sibling in order:
            stem = [parent * 100 + place for place in range(64)]
            one.submit(SimulatedRequest(ids([*stem, 9000 + sibling, 1]), ids([1]), 1))
        gpu = Gpus([one])
        gpu.run(0.0)
        while (now := gpu.next_s()) is not None:
            gpu.run(now)
            end = now
        return end

    together = [(parent, sibling) for parent in range(20) for sibling in range(4)]
    in_turn = sorted(together, key=lambda pair: (pair[1], pair[0]))
    low, high = gain
    assert low <= wall(in_turn) / wall(together) <= high


SIZE = 2
BLOCKS = 8
sequences = st.lists(st.integers(0, 1), min_size=1, max_size=9)


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
