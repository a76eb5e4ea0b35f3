"""Models as the simulation sees them: parameters, FLOPs, and the bytes that a step reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tts.build.model_config import ModelConfig
from tts.build.spec import Precision, TensorRTEngine
from tts.build.tensorrt.engine_memory import kv_bytes_of, parameters, weights_of
from tts.build.tensorrt.model_shape import shape_of
from tts.compat import Self

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
    """All weights, as they lie in memory."""
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
        ways, counted = placement.tensor_parallel, parameters(config)
        stages = [
            weights_of(config, precision, placement, stage)
            for stage in range(placement.pipeline_parallel)
        ]
        layers = sum(stage.layers for stage in stages)
        experts = sum(stage.experts for stage in stages)
        head_bytes = sum(stage.head for stage in stages) if head else 0
        embedding = 2 * counted.embedding / ways
        return cls(
            body=counted.active / ways,
            head=counted.head / ways if head else 0.0,
            weight_bytes=layers + experts + embedding + (0 if counted.tied else head_bytes),
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

    def read_by(self, tokens: int) -> float:
        """Bytes of the layers' weights that a step of so many tokens reads.

        Of a mixture of experts those that at least one token is sent to, with all of them equally
        likely: 1 - (1 - share)^tokens of them on average.
        """
        if not self.expert_bytes:
            return self.body_bytes
        return self.body_bytes + self.expert_bytes * (1 - (1 - self.expert_share) ** tokens)


LLAMA_1B = ModelShape.of(shape_of(Path("Llama-3.2-1B-Instruct")))
LLAMA_8B_VERIFIER = ModelShape.of(shape_of(Path("Llama3.1-8B-PRM-Deepseek-Data")), head=False)
"""Llama-3.1-8B with its head cut to the rows of the two labels."""
