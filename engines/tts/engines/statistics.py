"""What an engine did in one iteration: data, and metrics under TensorRT-LLM's names. Pure.

Without a counterpart here, and left out: `nv_trt_llm_runtime_memory_metrics`, `micro_batch_id`, and
the `reused` blocks, which the pipeline does not report.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from .generate_request import EngineLimits


@dataclass(frozen=True, slots=True)
class Statistics:
    """One iteration of an engine, with running totals. Token counts are exact except where said."""

    iteration: int = 0
    timestamp: float = 0.0
    """Unix time when it ended, seconds."""
    monotonic: float = 0.0
    """When it ended by the machine's monotonic clock (CLOCK_MONOTONIC), seconds since its boot:
    every process of the machine reads the same one, and it cannot be set."""
    seconds: float = 0.0
    """How long the pipeline took for it."""
    active: int = 0
    """Requests known to the engine: scheduled, admitted or queued."""
    queued: int = 0
    """Requests not admitted yet."""
    scheduled: int = 0
    """Requests that took part in this iteration."""
    context_requests: int = 0
    """Scheduled requests whose prompt is not computed yet."""
    generation_requests: int = 0
    """Scheduled requests that generated one token each."""
    context_tokens: int = 0
    """Tokens of the prompts completed in this iteration. Each prompt counts fully and once: the
    pipeline reports neither how it was split over iterations nor how much of it was reused. Prompts
    of requests cancelled before that are left out."""
    generated_tokens: int = 0
    """Tokens generated in this iteration, the first ones of completed prompts included."""
    blocks_used: int = 0
    """KV blocks in use, without blocks kept only for reuse."""
    blocks_reserved: int = 0
    """KV blocks reserved for the worst case of active requests."""
    prefixes_missed: int = 0
    """Prompts of which the pool had kept a part and dropped it, since the pipeline was opened."""
    requests_total: int = 0
    """Requests answered since start, failed ones included."""
    input_tokens_total: int = 0
    output_tokens_total: int = 0


FAMILIES: dict[str, tuple[str, str]] = {
    "nv_trt_llm_request_metrics": ("request_type", "Requests of the last iteration"),
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_block_type", "Paged KV cache, in blocks"),
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        "In-flight batching of the last iteration",
    ),
    "nv_trt_llm_general_metrics": ("general_type", "Time and number of the last iteration"),
    "nv_llm_input_token_len": ("response_metric_type", "Prompt tokens per answered request"),
    "nv_llm_output_token_len": ("response_metric_type", "Generated tokens per answered request"),
}
"""Metric family -> the label that distinguishes its metrics, and its description."""

TOKEN_BUCKETS = (10, 50, 100, 500, 1000)


class Metric(NamedTuple):
    """One metric: its family and the value of the family's label.

    For a part of a histogram also the suffix of its name ("_bucket", "_sum", "_count") and the
    upper bound of the bucket.
    """

    family: str
    kind: str
    suffix: str = ""
    le: str = ""

    @property
    def name(self) -> str:
        """The metric's exported name."""
        return self.family + self.suffix

    @property
    def labels(self) -> dict[str, str]:
        """The exported labels except model and version."""
        label = {FAMILIES[self.family][0]: self.kind}
        return label | {"le": self.le} if self.le else label


class TokenLengths:
    """The histogram of one kind of length, kept as the counters that Prometheus reads.

    A histogram of Triton's takes one value at a time, each a round trip to the server; a counter
    takes what many requests have added at once.
    """

    def __init__(self, family: str, kind: str) -> None:
        self._metric = Metric(family, kind)
        self._sum = 0
        self._counts = [0] * (len(TOKEN_BUCKETS) + 1)  # by bucket; the last is beyond all bounds

    def observe(self, tokens: int) -> None:
        """Count one request."""
        self._sum += tokens
        self._counts[bisect_left(TOKEN_BUCKETS, tokens)] += 1

    def counters(self) -> dict[Metric, float]:
        """Totals since start."""
        within = list(accumulate(self._counts))
        bounds = [*map(str, TOKEN_BUCKETS), "+Inf"]
        metric = self._metric
        return {
            metric._replace(suffix="_count"): within[-1],
            metric._replace(suffix="_sum"): self._sum,
            **{
                metric._replace(suffix="_bucket", le=bound): count
                for bound, count in zip(bounds, within, strict=True)
            },
        }


def gauges(statistics: Statistics, limits: EngineLimits) -> dict[Metric, float]:
    """The value of every gauge."""
    requests, cache, batcher, general, *_ = FAMILIES
    values: dict[tuple[str, str], float] = {
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
    return {Metric(family, kind): value for (family, kind), value in values.items()}
