"""How two engines share the memory for KV caches, as properties of any division."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.build.planned_pair import ONE_B, PRM

from tts.build.model_config import shape_of
from tts.build.tensorrt.gpus import GIB, GPUS
from tts.build.tensorrt.kv_split import PoolLimit, Side, search_split
from tts.build.tensorrt.step_time import ModelShape, Roofline, StepLoad


def side(shape, **fields):
    return Side(
        **(
            {
                "steps": Roofline(GPUS["h100"], ModelShape.of(shape)),
                "beams": 256,
                "block": 32,
                "reuse": True,
                "shared": 150,
                "own": 300,
                "new": 1,
                "decoded": 60,
                "max_batch_size": 256,
                "max_num_tokens": 4096,
                "minimum": 2048,
                "useful": 10**9 // 32 * 32,
            }
            | fields
        )
    )


@given(
    tokens=st.integers(0, 10**6), shared=st.integers(0, 400), block=st.sampled_from([16, 32, 64])
)
@settings(deadline=None)
def test_a_pool_holds_what_it_was_sized_for(tokens, shared, block):
    some = side(shape_of(ONE_B), shared=shared, block=block)
    held = some.holds(tokens)
    assert (some.pool(held) if held else 0) <= tokens < some.pool(held + 1)


def test_a_step_that_writes_takes_a_decode_longer_for_each_token():
    """At the mean context of its tokens; one that writes nothing is a prefill alone."""
    writes, scores = side(shape_of(ONE_B), decoded=60), side(shape_of(ONE_B), decoded=0)
    plenty = writes.pool(256)
    decode = writes.steps.cost(StepLoad(256, 256 * (150 + 300 + 60 / 2))).duration_s
    assert writes.step_s(plenty) - scores.step_s(plenty) == pytest.approx(60 * decode)
    prefill = scores.step_s(plenty)
    assert 0 < prefill < 60 * decode


@given(
    capacity=st.integers(8, 80),
    more=st.integers(0, 40),
    beams=st.integers(1, 1024),
    reuse=st.booleans(),
)
@settings(deadline=None)
def test_more_memory_never_costs_more(capacity, more, beams, reuse):
    sides = (
        side(shape_of(ONE_B), beams=beams),
        side(
            shape_of(PRM),
            beams=beams,
            reuse=reuse,
            new=65,
            decoded=0,
            max_batch_size=64,
            max_num_tokens=8192,
        ),
    )
    each = (32_768, 131_072)

    def used(pools):
        return pools.generator * each[0] + pools.verifier * each[1]

    small = search_split(sides, [PoolLimit(capacity * GIB, each)])
    large = search_split(sides, [PoolLimit((capacity + more) * GIB, each)])
    assert large.seconds <= small.seconds * (1 + 1e-9)
    assert used(small) <= capacity * GIB
    assert used(large) >= used(small) - 32 * sum(each)  # but for rounding to blocks


def test_nothing_is_found_where_nothing_fits():
    some = side(shape_of(ONE_B))
    limit = PoolLimit(2048 * (32_768 + 131_072) - 1, (32_768, 131_072))
    assert search_split((some, some), [limit]) is None
    limit = PoolLimit(limit.capacity + 1, limit.per_token)
    pools = search_split((some, some), [limit])
    assert (pools.generator, pools.verifier) == (2048, 2048)
