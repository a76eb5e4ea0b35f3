"""Models as the simulation sees them: parameters, FLOPs and KV bytes per token, in bf16."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tts.build.model_config import ModelConfig
from tts.build.tensorrt.engine_memory import parameters
from tts.build.tensorrt.model_shape import shape_of
from tts.compat import Self

BYTES_PER_WEIGHT = 2  # bf16, and so is the KV cache


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers that determine the cost of a model's steps."""

    parameters: float
    """All parameters, which take up memory."""
    body: float
    """Parameters of the layers."""
    head: float
    """Parameters of the output head; 0 where the head is cut to a few rows."""
    attention_flops: int
    """FLOPs of attention for one token and one token of its context."""
    kv_bytes: int
    """KV cache of one token."""
    min_step_s: float = 0.0
    """A step that generates takes at least this long, however small its batch."""

    @classmethod
    def of(cls, config: ModelConfig, *, head: bool = True, min_step_s: float = 0.0) -> Self:
        """The costs of a model of this shape; without `head`, its output matrix is cut away."""
        counted = parameters(config)
        cut = 0 if head or counted.tied else counted.head
        kv_values = 2 * config.num_layers * config.num_kv_heads * config.head_dim
        return cls(
            parameters=counted.total - cut,
            body=counted.body,
            head=counted.head if head else 0.0,
            attention_flops=config.attention_flops,
            kv_bytes=kv_values * BYTES_PER_WEIGHT,
            min_step_s=min_step_s,
        )

    @property
    def weight_bytes(self) -> float:
        """Size in memory."""
        return self.parameters * BYTES_PER_WEIGHT


LLAMA_1B = ModelShape.of(
    shape_of(Path("Llama-3.2-1B-Instruct")),
    # an engine at batch 1 reaches half of the H100's bandwidth at most with this model:
    # https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles
    min_step_s=1.2e-3,
)
LLAMA_8B_VERIFIER = ModelShape.of(shape_of(Path("Llama3.1-8B-PRM-Deepseek-Data")), head=False)
"""Llama-3.1-8B with its head cut to the rows of the two labels."""
