"""What GPUs can do at most, and what models ask of them: data, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_WEIGHT = 2  # bf16, and so is the KV cache


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Peaks of one GPU, dense bf16."""

    flops_per_s: float
    bytes_per_s: float
    memory_bytes: float


# https://glennklockwood.com/garden/processors/A100,
# https://acecloud.ai/blog/nvidia-b200-vs-h200-h100-a100 (H100 is the SXM version)
GPUS = {
    "a100-80g": GpuFacts(312e12, 2.039e12, 80e9),
    "h100": GpuFacts(989e12, 3.35e12, 80e9),
    "h200": GpuFacts(989e12, 4.8e12, 141e9),
}


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


# Shapes: https://huggingface.co/meta-llama/Llama-3.2-1B and .../Llama-3.1-8B. An engine at batch 1
# reaches half of the H100's bandwidth at most with the 1B model, hence the shortest step:
# https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles
LLAMA_1B = ModelShape(1.236e9, 0.973e9, 0.263e9, 16, 32, 8, 64, min_step_s=1.2e-3)
LLAMA_8B_VERIFIER = ModelShape(7.505e9, 6.979e9, 0.0, 32, 32, 8, 128)
"""Llama-3.1-8B with its head cut to the rows of the two labels."""
