"""Opening an `LLM` as the first message to an engine's process says."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tts.build.errors import EngineError
from tts.build.llmapi.version import (
    check_version,
    has_one_sampler,
    seeded_sampler,
    with_first_cache_manager,
)

from ..engine_messages import OpenLlm
from ..generate_request import GenerateRequest
from .host import LlmHost
from .output import sampling_arguments


def open_host(opening: OpenLlm) -> LlmHost:
    """The host of an `LLM` that is open; raises EngineError."""
    # before TensorRT-LLM is imported: with it CUDA is set up, here and in the ranks it starts
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    devices = ",".join(map(str, opening.devices))
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRTLLM_VISIBLE_DEVICES"] = devices
    try:
        import tensorrt_llm
    except ImportError as error:
        raise EngineError(
            f"TensorRT-LLM cannot be imported ({error}): target llmapi runs inside NVIDIA's image "
            "of it."
        ) from error
    version = tensorrt_llm.__version__
    if problem := check_version(version):
        raise EngineError(problem)
    one_sampler = has_one_sampler(version)
    try:
        llm = _open(tensorrt_llm, opening.arguments, version)
    except Exception as error:
        raise EngineError(f"TensorRT-LLM {version} does not open the model: {error}") from error
    return LlmHost(llm, tensorrt_llm.SamplingParams, one_sampler=one_sampler, labels=opening.labels)


def _open(tensorrt_llm: Any, arguments: dict[str, Any], version: str) -> Any:
    # an argument that this version does not have is refused now, not with the first request
    probe = GenerateRequest(
        np.zeros(1, np.int64),
        1,
        stop_words=((0,),),
        top_p=1.0,
        return_log_probs=True,
        return_generation_logits=True,
    )
    one_sampler = has_one_sampler(version)
    tensorrt_llm.SamplingParams(**sampling_arguments(probe, one_sampler=one_sampler))
    sampler = {} if arguments["gather_generation_logits"] else seeded_sampler(version)
    cache_fields = tensorrt_llm.llmapi.KvCacheConfig.model_fields
    return tensorrt_llm.LLM(**with_first_cache_manager(arguments, cache_fields), **sampler)
