"""An engine's statistics under the names of TensorRT-LLM's Triton metrics. Pure.

Left out because nothing here corresponds to them: `nv_trt_llm_runtime_memory_metrics`,
`micro_batch_id`, and the `reused` blocks, which the pipeline does not tell.
"""

from __future__ import annotations

from .requests import Limits
from .statistics import Statistics

FAMILIES: dict[str, tuple[str, str]] = {
    "nv_trt_llm_request_metrics": ("request_type", "Requests of the last iteration"),
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_block_type", "Paged KV cache, in blocks"),
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        "In-flight batching of the last iteration",
    ),
    "nv_trt_llm_general_metrics": ("general_type", "Time and number of the last iteration"),
}
"""Metric family -> the label that tells its gauges apart, and its description."""

TOKEN_BUCKETS = (10, 50, 100, 500, 1000)
HISTOGRAMS: dict[str, tuple[str, str]] = {
    "nv_llm_input_token_len": ("total_input_tokens", "Prompt tokens per answered request"),
    "nv_llm_output_token_len": ("total_output_tokens", "Generated tokens per answered request"),
}
"""Histogram -> the value of its label `response_metric_type`, and its description."""

Gauge = tuple[str, str]
"""A family and the value of its label."""


def gauges(statistics: Statistics, limits: Limits) -> dict[Gauge, float]:
    """The value of every gauge."""
    requests, cache, batcher, general = FAMILIES
    return {
        (requests, "active"): statistics.active,
        (requests, "max"): limits.max_active,
        (requests, "scheduled"): statistics.scheduled,
        (requests, "context"): statistics.context_requests,
        # requests that end in an iteration count as scheduled, but are not active any more
        (requests, "waiting"): max(0, statistics.active - statistics.scheduled),
        (cache, "max"): limits.blocks,
        (cache, "free"): limits.blocks - statistics.blocks_used,
        (cache, "used"): statistics.blocks_used,
        (cache, "tokens_per"): limits.block_size,
        (cache, "fraction"): statistics.blocks_used / limits.blocks,
        (batcher, "total_context_tokens"): statistics.context_tokens,
        (batcher, "generation_requests"): statistics.generation_requests,
        (batcher, "paused_requests"): 0,  # admission never lets it come to that
        (general, "timestamp"): statistics.timestamp * 1e6,
        (general, "iteration_counter"): statistics.iteration,
    }
