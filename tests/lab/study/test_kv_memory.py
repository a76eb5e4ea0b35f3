"""Divisions of a pair's KV memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import Deployment, load_deployment
from tts.lab.study.cells import CellEngines
from tts.lab.study.kv_memory import (
    deployment_of,
    divided,
    generator_share,
    least_tokens,
    pair_memory,
)

DEMO = load_deployment("demo")
DEMO_MEMORY = pair_memory(DEMO)
GPU = load_deployment("llama-1b-prm-8b-h100-bf16")


def pools(deployment, memory):
    return sum(
        memory.per_token[role] * spec.kv_cache.tokens for role, spec in deployment.engines().items()
    )


def test_the_memory_of_a_pair_is_that_of_its_plan():
    assert sum(DEMO_MEMORY.fixed.values()) + DEMO_MEMORY.pools == plan_host_memory(DEMO).resident
    assert generator_share(DEMO, DEMO_MEMORY) == pytest.approx(0.176, abs=1e-3)


@given(st.floats(0, 1), st.floats(0.05, 2))
def test_a_division_keeps_the_memory_and_is_a_deployment_that_can_be_served(share, scale):
    other = divided(DEMO, DEMO_MEMORY, share, scale)
    Deployment.model_validate(other.model_dump())
    block = 32 * sum(DEMO_MEMORY.per_token.values())
    assert pools(other, DEMO_MEMORY) <= scale * DEMO_MEMORY.pools
    assert pools(other, DEMO_MEMORY) > scale * DEMO_MEMORY.pools - block
    for spec in other.engines().values():
        assert spec.kv_cache.tokens >= least_tokens(spec)


@given(st.floats(0.05, 0.95))
def test_the_generator_gets_its_share(share):
    other = divided(DEMO, DEMO_MEMORY, share)
    assert generator_share(other, DEMO_MEMORY) == pytest.approx(share, abs=1e-3)
    assert deployment_of(DEMO, DEMO_MEMORY, CellEngines(share=share)) == other


def test_a_cell_without_reuse_turns_it_off_for_both_engines():
    cold = deployment_of(DEMO, DEMO_MEMORY, CellEngines(reuse=False)).engines()
    for role, spec in DEMO.engines().items():
        assert (spec.kv_cache.reuse, cold[role].kv_cache.reuse) == (True, False)
        assert cold[role].kv_cache.tokens == spec.kv_cache.tokens


def test_the_pools_of_gpus_are_counted_over_all_ranks():
    memory = pair_memory(GPU)
    assert memory.per_token == {"generator": 32_768, "verifier": 131_072}
    assert memory.shared
    assert pools(GPU, memory) == memory.pools


def test_engines_on_gpus_of_their_own_have_nothing_to_divide():
    assert not pair_memory(load_deployment("llama-1b-prm-8b-2xh100-disaggregated")).shared
