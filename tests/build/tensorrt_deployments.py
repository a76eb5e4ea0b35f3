"""Deployments for TensorRT-LLM, one by one and drawn by hypothesis."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

from hypothesis import assume
from hypothesis import strategies as st
from tests.build.conftest import pair

from tts.build.model_config import shape_of
from tts.build.spec import PRECISIONS, Gpu
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import Workspace

WORK = Workspace(Path("/built/x/.generator.work"), Path("/built/.timings/h100.cache"))
PRM = "/models/Llama3.1-8B-PRM-Deepseek-Data"


def make(gpu="h100", **fields):
    sizes = {"max_batch_size": 64, "max_num_tokens": 1024, "kv_cache": {"tokens": 8192}}
    return pair("tensorrt", PRM, gpu, **(sizes | fields))


def model(**fields):
    return replace(shape_of(Path(PRM), "tensorrt"), **fields)


@st.composite
def deployments(draw):
    gpu = draw(st.sampled_from(get_args(Gpu)))
    precision = draw(st.sampled_from(PRECISIONS["tensorrt"]))
    assume(contract.precision_problem(gpu, precision) is None)
    kv_precisions = ["auto", "fp8"] if precision == "fp8" else ["auto"]
    block = draw(st.sampled_from([16, 32, 64, 128]))
    return make(
        gpu,
        container=draw(st.sampled_from(sorted(contract.containers()))),
        precision=precision,
        max_batch_size=draw(st.integers(1, 2048)),
        max_num_tokens=max(block, draw(st.integers(1, 16384))),
        max_seq_len=max(block, draw(st.integers(1, 1024))),
        kv_cache={"tokens": 2 * 8192, "block_size": block},
        tensorrt={
            "tensor_parallel": draw(st.sampled_from([1, 2, 4])),
            "pipeline_parallel": draw(st.sampled_from([1, 2])),
            "kv_precision": draw(st.sampled_from(kv_precisions)),
            "calibration": {"dataset": draw(st.sampled_from(["cnn_dailymail", "/a b/c,d"]))},
        },
    )
