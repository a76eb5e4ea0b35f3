"""How fast an engine's steps can be on its GPU: an estimate from data sheets, not a measurement.

It prices the two kinds of step that the memory plan compares, pure decode and pure prefill, for any
precision and parallelism. tts.engines.simulated.step_time prices any mix of both in one step, from
the same constants.

    step    = max( FLOPs / (P x efficiency), bytes / (BW x efficiency) ) + overhead
    decode  : FLOPs = B x (2 body + 2 head + a x context)      bytes = weights + B x context x KV
    prefill : FLOPs = T x 2 body + B x 2 head + a x sum( new x (cached + new / 2) )
              bytes = weights + sum(cached) x KV

with a = 4 x layers x heads x head_size, the attention's FLOPs per token and token of context.
Communication between ranks is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model_config import ModelConfig
from ..spec import EngineSpec
from .engine_memory import kv_bytes_of, parameters, ranks_of
from .gpus import GpuFacts

COMPUTE_EFFICIENCY = 0.6
"""Share of the peak FLOP/s that large matrix products reach: the usual assumption."""
BANDWIDTH_EFFICIENCY = 0.8
"""Share of the peak memory bandwidth that is reached: the usual assumption."""
OVERHEAD_S = 0.4e-3
"""Seconds that every step takes besides: scheduling, kernel launches, sampling."""


@dataclass(frozen=True)
class Roofline:
    """One engine on one kind of GPU; of a tensor-parallel one, the work of one of its ranks."""

    body_flops: float
    """Per token: layers."""
    head_flops: float
    """Per token whose logits are wanted."""
    attention_flops: float
    """Per token and token of its context."""
    weight_bytes: float
    """Read by every step."""
    kv_bytes: float
    """Per cached token that is attended to."""
    flops: float
    bandwidth: float

    def decode_s(self, batch: float, context: float) -> float:
        """One step that writes one token for each of `batch` sequences, without its overhead."""
        flops = batch * (self.body_flops + self.head_flops + self.attention_flops * context)
        return self._seconds(flops, self.weight_bytes + batch * context * self.kv_bytes)

    def prefill_s(self, sequences: float, new: float, cached: float) -> float:
        """Prompts of `cached` + `new` tokens each; the cached ones are in the KV cache."""
        tokens = sequences * new
        flops = tokens * self.body_flops + sequences * self.head_flops
        flops += self.attention_flops * tokens * (cached + new / 2)
        return self._seconds(flops, self.weight_bytes + sequences * cached * self.kv_bytes)

    def _seconds(self, flops: float, moved: float) -> float:
        arithmetic = flops / (self.flops * COMPUTE_EFFICIENCY)
        return max(arithmetic, moved / (self.bandwidth * BANDWIDTH_EFFICIENCY))


def roofline(shape: ModelConfig, spec: EngineSpec, gpu: GpuFacts) -> Roofline:
    """The roofline of an engine: fp8 computes at fp8's rate, weight-only precisions in 16 bits."""
    placement = spec.placement
    tp, counted = placement.tensor_parallel, parameters(shape)
    stages = ranks_of(shape, spec)[::tp]  # a batch passes through all of them in turn
    fp8 = gpu.fp8_flops if spec.precision == "fp8" else None
    return Roofline(
        body_flops=2 * counted.active / tp,
        head_flops=2 * counted.head / tp,
        attention_flops=shape.attention_flops / tp,
        weight_bytes=sum(stage.streamed for stage in stages),
        kv_bytes=kv_bytes_of(shape, placement),
        flops=fp8 or gpu.flops,
        bandwidth=gpu.bandwidth,
    )
