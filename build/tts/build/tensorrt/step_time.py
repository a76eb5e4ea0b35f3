"""How long one step of an engine takes, given its model and its load: from data sheets.

The memory plan and the simulation price steps by it. Nothing of it is a measurement, but for
`Affine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from ..model_config import ModelConfig
from ..spec import Precision, TensorRTEngine
from .engine_memory import kv_bytes_of, parameters, weights_of
from .gpus import GpuFacts

_MIN_LAYER_S = 1.2e-3 / 16
"""A layer of a step that generates takes at least this long. An engine at batch 1 reaches half of
the H100's bandwidth at most with Llama-3.2-1B, whose 16 layers then take 1.2 ms:
https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles. For other models it is a guess."""
_ALL_REDUCES = 2
"""All-reduces of a layer: after attention and after MLP or experts, however these are divided
(Megatron-LM, https://arxiv.org/abs/1909.08053, section 3)."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers that determine the cost of an engine's steps, for one of its ranks."""

    body: float
    """Parameters of the layers that one token passes through."""
    head: float
    """Parameters of the output head; 0 where the head is cut to a few rows."""
    weight_bytes: float
    """All weights, as they are stored in memory."""
    body_bytes: float
    """Weights of the layers that every step reads."""
    head_bytes: float
    """Weights of the head, read by steps that generate."""
    attention_flops: float
    """FLOPs of attention for one token and one token of its context."""
    kv_bytes: float
    """KV cache of one token."""
    fp8: bool = False
    """Whether it is computed in fp8 (else in 16 bits)."""
    min_step_s: float = 0.0
    """A step that generates takes at least this long, however small its batch."""
    expert_bytes: float = 0.0
    """Experts of all layers; a step reads those that its tokens are sent to."""
    expert_share: float = 0.0
    """Share of a layer's experts that one token is sent to."""
    ranks: int = 1
    """Tensor-parallel ranks, which exchange what each has computed."""
    all_reduces: int = 0
    """All-reduces of a step, each of `hidden_bytes` for every token of the step."""
    hidden_bytes: int = 0
    """The hidden state of one token."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        precision: Precision = "bf16",
        placement: TensorRTEngine | None = None,
        *,
        head: bool = True,
    ) -> Self:
        """A rank of an engine of this shape; without `head`, its output matrix is cut away.

        Pipeline stages count as one rank, since a batch passes through all of them in turn. Experts
        are taken as equally busy on all ranks.
        """
        placement = placement or TensorRTEngine()
        ways, counts = placement.tensor_parallel, parameters(config)
        stages = [
            weights_of(config, precision, placement, stage)
            for stage in range(placement.pipeline_parallel)
        ]
        layers = sum(stage.layers for stage in stages)
        experts = sum(stage.experts for stage in stages)
        head_bytes = sum(stage.head for stage in stages) if head else 0
        embedding = 2 * counts.embedding / ways
        return cls(
            body=counts.active / ways,
            head=counts.head / ways if head else 0.0,
            weight_bytes=layers + experts + embedding + (0 if counts.tied else head_bytes),
            body_bytes=layers,
            head_bytes=head_bytes,
            attention_flops=config.attention_flops / ways,
            kv_bytes=kv_bytes_of(config, placement),
            fp8=precision == "fp8",
            min_step_s=config.num_layers * _MIN_LAYER_S,
            expert_bytes=experts,
            expert_share=config.experts.per_token / config.experts.count if config.experts else 0.0,
            ranks=ways,
            all_reduces=_ALL_REDUCES * config.num_layers if ways > 1 else 0,
            hidden_bytes=2 * config.hidden_size,
        )

    def read_by(self, tokens: float) -> float:
        """Bytes of the layers' weights that a step of so many tokens reads.

        For a mixture of experts, those that at least one token is sent to, with all of them equally
        likely: 1 - (1 - share)^tokens of them on average.
        """
        if not self.expert_bytes:
            return self.body_bytes
        missed: float = (1 - self.expert_share) ** tokens
        return self.body_bytes + self.expert_bytes * (1 - missed)


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computes, summed over its requests."""

    decodes: float = 0
    """Requests that generate one token each; a mean may be a fraction, as all numbers here."""
    decode_context: float = 0.0
    """Tokens that these attend to."""
    prefill_tokens: float = 0
    """Prompt tokens that are computed."""
    prefill_attention: float = 0.0
    """Pairs of such a token and one that it attends to."""
    cached_tokens: float = 0
    """Tokens of their context that were there before the step."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step alone on the GPU: its duration, and the time that compute and memory traffic need."""

    duration_s: float
    compute_s: float
    memory_s: float


class StepTime(Protocol):
    """The model of one engine's steps."""

    def cost(self, load: StepLoad) -> StepCost:
        """What a step with this load costs."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of a GPU's peaks an engine reaches."""

    compute: float = 0.6
    """Share of the peak FLOP/s, by the usual assumption: of a decode's matrix products, and of a
    large prefill's."""
    half_tokens: float = 400.0
    """Tokens in a step at which prefill reaches half of that."""
    bandwidth: float = 0.8
    """Share of the peak memory bandwidth, by the usual assumption."""
    link: float = 0.8
    """Share of the peak bandwidth between GPUs: of NVLink 4, nccl-tests see 0.8 in all-reduces."""
    overhead_s: float = 0.4e-3
    """What each step takes besides: kernel launches, sampling, scheduling."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A step takes as long as its compute or its memory traffic, whichever is longer.

    Weights are read once a step, whatever shares it. Prefill that rides along with many decodes is
    as efficient as the whole step is large. A tensor-parallel engine's step is that of one rank,
    whose narrower matrices need as many more tokens to be as efficient; and what the ranks exchange
    comes on top, as they wait for it.
    """

    gpu: GpuFacts
    model: ModelShape
    efficiency: Efficiency = Efficiency()

    def cost(self, load: StepLoad) -> StepCost:
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
        return StepCost(duration_s, compute_s, memory_s)

    def _exchange_s(self, tokens: float) -> float:
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

    def cost(self, load: StepLoad) -> StepCost:
        """See StepTime."""
        duration_s = (
            self.step_s
            + self.decode_s * load.decodes
            + self.context_token_s * load.decode_context
            + self.prefill_token_s * load.prefill_tokens
            + self.cached_token_s * load.cached_tokens
        )
        return StepCost(duration_s, duration_s, duration_s)
