"""How long one step of an engine takes, given its load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tts.build.tensorrt.gpus import GpuFacts
from tts.build.tensorrt.roofline import BANDWIDTH_EFFICIENCY, COMPUTE_EFFICIENCY, OVERHEAD_S

from .models import ModelShape


@dataclass(frozen=True, slots=True)
class Load:
    """What a step computes, summed over its requests."""

    decodes: int = 0
    """Requests that generate one token each."""
    decode_context: float = 0.0
    """Tokens that these attend to."""
    prefill_tokens: int = 0
    """Prompt tokens that are computed."""
    prefill_attention: float = 0.0
    """Pairs of such a token and one that it attends to."""
    cached_tokens: int = 0
    """Tokens of their context that were there before the step."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A step alone on the GPU: its duration, and the time that compute and memory traffic need."""

    duration_s: float
    compute_s: float
    memory_s: float


class StepTime(Protocol):
    """The model of one engine's steps."""

    def cost(self, load: Load) -> Cost:
        """What a step with this load costs."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of a GPU's peaks an engine reaches."""

    compute: float = COMPUTE_EFFICIENCY
    """Share of the peak FLOP/s: of a decode's matrix products, and of a large prefill's."""
    half_tokens: float = 400.0
    """Tokens in a step at which prefill reaches half of that."""
    bandwidth: float = BANDWIDTH_EFFICIENCY
    """Share of the peak memory bandwidth."""
    link: float = 0.8
    """Share of the peak bandwidth between GPUs: of NVLink 4, nccl-tests see 0.8 in all-reduces."""
    overhead_s: float = OVERHEAD_S
    """What each step takes besides: kernel launches, sampling, scheduling."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A step takes as long as its compute or its memory traffic, whichever is longer.

    Weights are read once a step, whatever shares it. Prefill that rides along with many decodes is
    as efficient as the whole step is large. Of a tensor-parallel engine it is the step of one rank,
    whose matrices are narrower, so that as many more tokens are needed to be as efficient; and what
    the ranks exchange comes on top, as they wait for it.
    """

    gpu: GpuFacts
    model: ModelShape
    efficiency: Efficiency = Efficiency()

    def cost(self, load: Load) -> Cost:
        """See StepTime."""
        gpu, model, reached = self.gpu, self.model, self.efficiency
        tokens = load.decodes + load.prefill_tokens
        decode = (
            load.decodes * 2 * (model.body + model.head)
            + model.attention_flops * load.decode_context
        )
        prefill = (
            load.prefill_tokens * 2 * model.body + model.attention_flops * load.prefill_attention
        )
        prefill *= (tokens + reached.half_tokens * model.ranks) / tokens
        flops = (gpu.fp8_flops if model.fp8 else None) or gpu.flops
        compute_s = (decode + prefill) / (flops * reached.compute)
        weights = model.read_by(tokens) + (model.head_bytes if load.decodes else 0.0)
        kv = (load.decode_context + load.cached_tokens) * model.kv_bytes
        memory_s = (weights + kv) / (gpu.bandwidth * reached.bandwidth)
        duration_s = max(compute_s, memory_s) + reached.overhead_s
        if load.decodes:
            duration_s = max(duration_s, model.min_step_s)
        if model.all_reduces:
            duration_s += self._exchange_s(tokens)
        return Cost(duration_s, compute_s, memory_s)

    def _exchange_s(self, tokens: int) -> float:
        """What the ranks' all-reduces of a step take.

        Each moves 2 (k - 1) / k of its data in and out of each of k ranks:
        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        model, link = self.model, self.gpu.link
        moved = 2 * (model.ranks - 1) / model.ranks * model.hidden_bytes * tokens
        each = link.latency_s + moved / (link.bandwidth * self.efficiency.link)
        return model.all_reduces * each


@dataclass(frozen=True, slots=True)
class Affine:
    """A step time fitted to measurements: a constant, and a coefficient for each part of the load.

    It does not say what bounds a step, so two engines that overlap on one GPU gain nothing.
    """

    step_s: float
    decode_s: float = 0.0
    context_token_s: float = 0.0
    prefill_token_s: float = 0.0
    cached_token_s: float = 0.0

    def cost(self, load: Load) -> Cost:
        """See StepTime."""
        duration_s = (
            self.step_s
            + self.decode_s * load.decodes
            + self.context_token_s * load.decode_context
            + self.prefill_token_s * load.prefill_tokens
            + self.cached_token_s * load.cached_tokens
        )
        return Cost(duration_s, duration_s, duration_s)
