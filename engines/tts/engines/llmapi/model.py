"""The Triton Python model around TensorRT-LLM's `LLM(...)`.

Triton imports this through the repository's model.py.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tts.build.errors import EngineError
from tts.build.llmapi.version import (
    check_version,
    has_one_sampler,
    seeded_sampler,
    with_first_cache_manager,
)

from ..generate_request import GenerateRequest, Limits
from ..loading import READING, Stage, tell
from ..statistics import Metric
from ..triton_model import EngineModel
from .host import LlmHost
from .output import sampling_arguments

_REQUESTS = "nv_trt_llm_request_metrics"


class TritonPythonModel(EngineModel):
    """One replica of an engine behind Triton's Python backend."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the checkpoint that the model configuration names."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        config = json.loads(args["model_config"])
        settings = {key: value["string_value"] for key, value in config["parameters"].items()}
        llm_args = json.loads(settings["llm_args"])
        labels = tuple(map(int, filter(None, settings["label_token_ids"].split(","))))
        decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        limits = limits_of(llm_args, int(settings["vocab_size"]), len(labels), decoupled=decoupled)
        _choose_gpus(settings["gpu_device_ids"], args["model_instance_name"])
        tell(Stage(args["model_name"], READING))
        llm, sampling_params, version = _open(llm_args)
        self.serve(args, limits)
        self._host = LlmHost(
            llm,
            sampling_params,
            one_sampler=has_one_sampler(version),
            labels=labels,
            cancel_check_s=int(settings["cancellation_check_period_ms"]) / 1000,
            statistics_s=int(settings["stats_check_period_ms"]) / 1000,
            on_active=self._publish_active,
        )

    def _publish_active(self, active: int) -> None:
        most = self._limits.max_active
        self._publish(
            {
                Metric(_REQUESTS, "active"): active,
                Metric(_REQUESTS, "max"): most,
                # the engine runs so many at a time; how many of them it really runs, it keeps
                Metric(_REQUESTS, "waiting"): max(0, active - most),
            }
        )


def limits_of(
    llm_args: Mapping[str, Any], vocab_size: int, labels: int, *, decoupled: bool
) -> Limits:
    """The limits of requests to an `LLM` opened with these arguments."""
    cache = llm_args["kv_cache_config"]
    block_size = cache["tokens_per_block"]
    return Limits(
        vocab_size=vocab_size,
        max_seq_len=llm_args["max_seq_len"],
        max_num_tokens=llm_args["max_num_tokens"],
        block_size=block_size,
        blocks=cache["max_tokens"] // block_size,
        max_active=llm_args["max_batch_size"],
        chunked_context=llm_args["enable_chunked_prefill"],
        kv_reuse=cache["enable_block_reuse"],
        labels=labels,
        decoupled=decoupled,
        # TorchSampler takes penalties and does not apply them (TensorRT-LLM #9442) until #16485,
        # and which of a request's stops min_tokens holds back is not known
        shaped=False,
    )


def _choose_gpus(gpu_device_ids: str, instance: str) -> None:
    """Show this process the GPUs of its replica alone; instances are named MODEL_GROUP_NUMBER."""
    number = re.search(r"_(\d+)$", instance)
    devices = gpu_device_ids.split(";")[int(number[1]) if number else 0]
    # before TensorRT-LLM is imported: with it CUDA is set up, here and in the ranks it starts
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRTLLM_VISIBLE_DEVICES"] = devices


def _open(llm_args: dict[str, Any]) -> tuple[Any, Any, str]:
    """An `LLM`, the class of its sampling parameters, and the version; raises EngineError."""
    try:
        import tensorrt_llm
    except ImportError as error:
        raise EngineError(
            f"TensorRT-LLM cannot be imported by the Python of Triton's models: {error}"
        ) from error
    version = tensorrt_llm.__version__
    if problem := check_version(version):
        raise EngineError(problem)
    try:
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
        sampler = {} if llm_args["gather_generation_logits"] else seeded_sampler(version)
        cache_fields = tensorrt_llm.llmapi.KvCacheConfig.model_fields
        llm = tensorrt_llm.LLM(**with_first_cache_manager(llm_args, cache_fields), **sampler)
    except Exception as error:
        raise EngineError(f"TensorRT-LLM {version} does not open the model: {error}") from error
    return llm, tensorrt_llm.SamplingParams, version
