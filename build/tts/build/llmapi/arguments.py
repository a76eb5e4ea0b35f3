"""The arguments of TensorRT-LLM's `LLM(...)` for an engine of a deployment. Pure."""

from __future__ import annotations

from pydantic import JsonValue

from ..spec import EngineSpec, Precision, VerifierSpec
from ..tensorrt.memory_plan import KV_FRACTION

DTYPES: dict[Precision, str] = {"fp16": "float16", "bf16": "bfloat16"}
_GIB = 1024**3


def llm_arguments(spec: EngineSpec) -> dict[str, JsonValue]:
    """What `LLM` is opened with; the models compare it with nothing, they pass it on.

    The KV pool is a number of tokens, because a share of the free memory would depend on which of
    two engines loads first. A verifier has no CUDA graphs: they are for steps that only decode, and
    its single token comes out of the prompt's last step.
    """
    place, cache = spec.placement, spec.kv_cache
    verifier = isinstance(spec, VerifierSpec)
    arguments: dict[str, JsonValue] = {
        "model": str(spec.checkpoint),
        "skip_tokenizer_init": True,
        "trust_remote_code": False,
        "dtype": DTYPES[spec.precision],
        "tensor_parallel_size": place.tensor_parallel,
        "pipeline_parallel_size": place.pipeline_parallel,
        "max_batch_size": spec.max_batch_size,
        "max_num_tokens": spec.max_num_tokens,
        "max_seq_len": spec.max_seq_len,
        "max_beam_width": 1,
        "enable_chunked_prefill": spec.chunked_context,
        "kv_cache_config": {
            "max_tokens": cache.blocks * cache.block_size,
            "free_gpu_memory_fraction": KV_FRACTION,
            "tokens_per_block": cache.block_size,
            "enable_block_reuse": cache.reuse,
            "host_cache_size": int(place.kv_host_gib * _GIB),
        },
        "scheduler_config": {"capacity_scheduler_policy": spec.scheduling_policy.upper()},
        "cuda_graph_config": None
        if verifier
        else {"max_batch_size": spec.max_batch_size, "enable_padding": True},
        "gather_generation_logits": verifier,
    }
    if place.expert_parallel > 1:
        arguments["moe_expert_parallel_size"] = place.expert_parallel
    return arguments
