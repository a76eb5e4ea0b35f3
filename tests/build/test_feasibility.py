"""What a GPU or a model cannot do: refused alike by the memory plan and by the build."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.planned_pair import ONE_B, deployment

from tts.base.errors import ConfigError
from tts.build.model_config import Experts, ModelConfig, shape_of
from tts.build.spec import PRECISIONS
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import check_engine, check_feasible
from tts.build.tensorrt.gpus import GPUS
from tts.build.tensorrt.memory_plan import plan_memory

LLAMA = shape_of(Path(ONE_B))


def changed(**fields):
    return ModelConfig(**(vars(LLAMA) | fields))


@pytest.mark.parametrize(
    ("gpu", "fields", "why"),
    [
        ("a100-80g", {"precision": "fp8"}, "fp8 needs compute capability 8.9"),
        ("b200", {"precision": "int8"}, "refuses weight-only int8 and int4"),
        ("h100", {"tensorrt": {"tensor_parallel": 3}}, "the model's 32 attention heads"),
        ("h100", {"tensorrt": {"pipeline_parallel": 17}}, "the model has 16 layers"),
        ("h100", {"tensorrt": {"tensor_parallel": 2, "expert_parallel": 2}}, "has no experts"),
    ],
)
def test_the_plan_and_the_build_refuse_with_one_sentence(gpu, fields, why):
    wanted = deployment(gpu, fields)
    with pytest.raises(ConfigError) as planned:
        plan_memory(wanted)
    with pytest.raises(ConfigError) as built:
        check_engine(wanted, "generator", LLAMA)
    assert str(planned.value) == str(built.value)
    assert why in planned.value.message


@pytest.mark.parametrize(
    ("model", "place", "sentence"),
    [
        (changed(num_heads=32, num_kv_heads=6), {}, "the model's 6 key/value heads"),
        (changed(intermediate_size=8190), {}, "the model's MLP is 8190 wide"),
        (changed(experts=Experts(6, 2, 8192, 0)), {"expert_parallel": 4}, "the model's 6 experts"),
        (changed(experts=Experts(8, 2, 8190, 0)), {"expert_parallel": 1}, "MLP is 8190 wide"),
    ],
)
def test_a_model_that_does_not_divide_is_refused(model, place, sentence):
    wanted = deployment("h100", {"tensorrt": {"tensor_parallel": 4} | place})
    check_feasible(wanted, "generator", changed(num_kv_heads=2, experts=Experts(8, 2, 8192, 0)))
    with pytest.raises(ConfigError, match=sentence):
        check_feasible(wanted, "generator", model)


@given(st.sampled_from(sorted(GPUS)), st.sampled_from(PRECISIONS["tensorrt"]))
def test_a_refused_precision_is_not_among_those_recommended(gpu, precision):
    wanted = deployment(gpu, {"precision": precision})
    if contract.precision_problem(gpu, precision) is None:
        check_feasible(wanted, "generator", LLAMA)
        return
    with pytest.raises(ConfigError) as caught:
        check_feasible(wanted, "generator", LLAMA)
    recommended = str(caught.value.hint).partition("(")[2].partition(")")[0].split(", ")
    assert precision not in recommended
    assert "bf16" in recommended
