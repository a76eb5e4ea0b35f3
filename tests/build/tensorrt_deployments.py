"""Deployments for TensorRT-LLM, one by one and drawn by hypothesis."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from hypothesis import assume
from hypothesis import strategies as st

from tts.build.model_config import ModelConfig
from tts.build.spec import PRECISIONS, Deployment, Gpu
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import (
    Workspace,
)
from tts.build.tensorrt.model_shape import shape_of

WORK = Workspace(Path("/built/x/.generator.work"), Path("/built/.timings/h100.cache"))
PRM = "/models/Llama3.1-8B-PRM-Deepseek-Data"


def make(gpu: str = "h100", container: str = "26.07", **fields: Any) -> Deployment:
    engine = {
        "checkpoint": PRM,
        "precision": "bf16",
        "max_batch_size": 64,
        "max_num_tokens": 1024,
        "max_seq_len": 512,
        "kv_cache": {"tokens": 8192},
    } | fields
    return Deployment.model_validate(
        {
            "name": "x",
            "target": "tensorrt",
            "tensorrt": {"gpu": gpu, "container": container},
            "generator": engine | {"in_flight_requests": 4},
            "verifier": engine | {"in_flight_tokens": 8192},
        }
    )


def model(**fields: Any) -> ModelConfig:
    return replace(shape_of(Path(PRM), "tensorrt"), **fields)


@st.composite
def deployments(draw: Any) -> Deployment:
    gpu = draw(st.sampled_from(get_args(Gpu)))
    precision = draw(st.sampled_from(PRECISIONS["tensorrt"]))
    assume(contract.precision_problem(gpu, precision) is None)
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    block = draw(st.sampled_from([16, 32, 64, 128]))
    length = draw(st.integers(1, 8192))
    return make(
        gpu,
        draw(st.sampled_from(sorted(contract.containers()))),
        precision=precision,
        max_batch_size=draw(st.integers(1, 2048)),
        max_num_tokens=max(block, draw(st.integers(1, 16384))),
        max_seq_len=max(block, length),
        kv_cache={"tokens": 2 * 8192, "block_size": block},
        tensorrt={
            "tensor_parallel": tensor,
            "pipeline_parallel": pipeline,
            "kv_precision": draw(st.sampled_from(["auto", "fp8"]))
            if precision == "fp8"
            else "auto",
            "calibration": {"dataset": draw(st.sampled_from(["cnn_dailymail", "/a b/c,d"]))},
        },
    )
