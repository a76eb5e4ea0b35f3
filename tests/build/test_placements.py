"""Every placement of a pair on so many GPUs: all of them used, nothing that does not fit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.planned_pair import EIGHT_B, deployment

from tts.base.errors import ConfigError
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.memory_plan import check_pools, plan_memory
from tts.build.tensorrt.placements import Placement, place, placed, placements


@given(gpus=st.integers(1, 64))
def test_placements_use_every_gpu_and_are_told_apart(gpus):
    found = placements(gpus)
    assert all(each.gpus == gpus for each in found)
    assert len({each.text for each in found}) == len(set(found)) == len(found)
    assert Placement(gpus, 1, 1, shared=True) in found
    assert [each.gpus_each for each in found] == sorted(each.gpus_each for each in found)


def test_placements_on_four_gpus():
    assert [each.text for each in placements(4)] == [
        "4 servers, both engines on one GPU",
        "2 servers, both engines with TP2 on the same GPUs",
        "2 servers, a GPU for each engine",
        "1 server, both engines with TP4 on the same GPUs",
        "1 server, generator TP2 and verifier TP2 apart",
    ]


@given(gpus=st.integers(1, 8))
def test_what_is_placed_is_a_deployment_that_fits_with_the_pools_of_its_own_plan(gpus):
    fits, refused = placed(deployment("h100"), gpus)
    assert [*(each.placement for each in fits), *(each.placement for each in refused)]
    for each in fits:
        check_pools(each.deployment)
        assert len(gpus_of(each.deployment)) == each.placement.gpus_each
        planned = plan_memory(each.deployment)
        assert planned.shared == each.placement.shared
        for role, engine in planned.engines.items():
            assert each.deployment.engines()[role].kv_cache.tokens == engine.tokens


def test_what_does_not_fit_is_refused_with_the_reason():
    pair = deployment("rtx4090", {"checkpoint": EIGHT_B})  # 15 GiB of weights each, on 24
    fits, refused = placed(pair, 4)
    assert Placement(4, 1, 1, shared=True) in [each.placement for each in refused]
    assert Placement(1, 2, 2, shared=False) in [each.placement for each in fits]
    assert all("GPU 0" in each.reason for each in refused)


def test_experts_stay_divided_where_the_ranks_allow_it():
    mixture = Path("/nowhere/Mixtral-8x7B-Instruct-v0.1")
    divided = {"tensor_parallel": 2, "expert_parallel": 2}
    pair = deployment("h200", {"checkpoint": mixture, "tensorrt": divided})
    for ranks, groups in ((1, 1), (4, 2)):
        spec = place(pair, Placement(1, ranks, 1, shared=False)).generator
        assert (spec.placement.tensor_parallel, spec.placement.expert_parallel) == (ranks, groups)


def test_a_parallelism_that_does_not_divide_the_model_is_refused():
    with pytest.raises(ConfigError, match=r"tensor_parallel is 64; .* 32 attention heads"):
        place(deployment("h100"), Placement(1, 64, 64, shared=True))
