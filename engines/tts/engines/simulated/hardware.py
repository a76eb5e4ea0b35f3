"""What models ask of a GPU, whose facts the memory planner knows already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tts.build.model_config import ModelConfig
from tts.build.tensorrt.engine_memory import parameters
from tts.build.tensorrt.gpus import GPUS, GpuFacts
from tts.build.tensorrt.model_shape import shape_of

__all__ = ["BYTES_PER_WEIGHT", "GPUS", "LLAMA_1B", "LLAMA_8B_VERIFIER", "GpuFacts", "ModelShape"]

BYTES_PER_WEIGHT = 2  # bf16, and so is the KV cache


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a step of a model costs. Counts are of parameters or tokens."""

    parameters: float
    """All of them: what it takes in memory."""
    body: float
    """Those of the layers."""
    head: float
    """Those of the output head; 0 where the head is cut to a few rows."""
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    min_step_s: float = 0.0
    """A step that generates takes at least this long, however small its batch."""

    @classmethod
    def of(cls, config: ModelConfig, *, head: bool = True, min_step_s: float = 0.0) -> Self:
        """The costs of a model of this shape; without `head`, its output matrix is cut away."""
        counted = parameters(config)
        cut = 0 if head or counted.tied else counted.head
        return cls(
            parameters=counted.total - cut,
            body=counted.body,
            head=counted.head if head else 0.0,
            layers=config.num_layers,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_size=config.head_dim,
            min_step_s=min_step_s,
        )

    @property
    def weight_bytes(self) -> float:
        """Size in memory."""
        return self.parameters * BYTES_PER_WEIGHT

    @property
    def kv_bytes(self) -> int:
        """KV cache of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES_PER_WEIGHT

    @property
    def attention_flops(self) -> int:
        """Attention of one token to one token of context."""
        return 4 * self.layers * self.heads * self.head_size


LLAMA_1B = ModelShape.of(
    shape_of(Path("Llama-3.2-1B-Instruct")),
    # an engine at batch 1 reaches half of the H100's bandwidth at most with this model:
    # https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles
    min_step_s=1.2e-3,
)
LLAMA_8B_VERIFIER = ModelShape.of(shape_of(Path("Llama3.1-8B-PRM-Deepseek-Data")), head=False)
"""Llama-3.1-8B with its head cut to the rows of the two labels."""
