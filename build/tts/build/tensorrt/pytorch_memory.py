"""Device memory of one rank of TensorRT-LLM's PyTorch backend (trtllm-serve), from shapes alone.

Weights and KV cache are those of the compiled engine, whose tensors are the same. What differs, all
of it estimated:

- *activations*: as a compiled engine's. PyTorch allocates them step by step, and its allocator
  keeps what it has; the backend measures the peak with a full step before it sizes the KV pool.
- *logits*: float32 rows [vocabulary] per request in the sampler: logits, probabilities, their
  sorted copies and the indices of these, which take two. Where scores are made of them they are
  returned, so one more.
- *workspaces*: CUDA contexts, 0.5 to 1.2 GiB for each process that imports TensorRT-LLM (by its
  pull request 15632): every rank, and the engine's process that has its ranks spawned; PyTorch's
  cuBLAS and the attention's workspaces; NCCL where there are several ranks; and for an engine that
  writes its CUDA graphs, each of which "can use up to 200 MB of extra memory"
  (TorchLlmArgs.cuda_graph_config). That is an upper bound: graphs share a memory pool.
"""

from __future__ import annotations

from dataclasses import replace

from ..model_config import ModelConfig
from ..spec import EngineSpec
from . import engine_memory
from .engine_memory import COMMUNICATION, RankMemory
from .gpus import GIB

CONTEXT = int(1.20 * GIB)
"""CUDA context of one process that imports TensorRT-LLM, the most that was reported."""
WORKSPACE = int(0.50 * GIB)
"""cuBLAS and attention workspaces of one rank."""
SAMPLER_ROWS = 6
CUDA_GRAPH = 200 * 10**6


def ranks_of(shape: ModelConfig, spec: EngineSpec) -> tuple[RankMemory, ...]:
    """Memory of each rank of one replica, in rank order (pipeline stage by stage)."""
    return tuple(
        replace(
            rank,
            logits=_logits(shape, spec) if rank.logits else 0,
            workspaces=_workspaces(spec, number),
            transfer=0,  # no cache transceiver unless LLM is given one
        )
        for number, rank in enumerate(engine_memory.ranks_of(shape, spec))
    )


def graph_sizes(max_batch_size: int) -> list[int]:
    """The batch sizes for which the backend records a CUDA graph, with padding enabled.

    1, 2, 4, multiples of 8 up to 128, then of 64, and the largest.
    """
    sizes = {1, 2, 4, *range(8, 129, 8), *range(192, max_batch_size + 1, 64), max_batch_size}
    return sorted(size for size in sizes if size <= max_batch_size)


def _logits(shape: ModelConfig, spec: EngineSpec) -> int:
    rows = SAMPLER_ROWS + spec.judges
    return rows * 4 * spec.max_batch_size * shape.vocab_size


def _workspaces(spec: EngineSpec, rank: int) -> int:
    several = spec.placement.ranks > 1
    # with its logits gathered, the only rank runs in the engine's process
    spawned = several or not spec.judges
    contexts = CONTEXT * (2 if rank == 0 and spawned else 1)
    fixed = contexts + WORKSPACE + (COMMUNICATION if several else 0)
    if not spec.writes:
        return fixed
    return fixed + CUDA_GRAPH * len(graph_sizes(spec.max_batch_size))
