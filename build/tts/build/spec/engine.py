"""Fields of sections `generator` and `verifier` whose engine is compiled here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StrictBool, model_validator

from .role import RoleSpec
from .section import Count, FilePath, Parallel, Section
from .tensorrt import TensorRTEngine

Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4_awq"]


class KvCache(Section):
    """The paged KV cache of one engine."""

    block_size: Count = 32
    """Tokens per block (TensorRT-LLM: tokens_per_block, a power of two)."""
    tokens: Annotated[int, Field(strict=True, ge=1, le=10**9)]
    """Size of the whole pool, in tokens (max_tokens_in_paged_kv_cache)."""
    reuse: StrictBool = True
    """Keep finished prefixes and serve them to later requests (enable_kv_cache_reuse)."""

    @property
    def blocks(self) -> int:
        """Number of whole blocks in the pool."""
        return self.tokens // self.block_size

    @model_validator(mode="after")
    def _power_of_two(self) -> Self:
        if self.block_size & (self.block_size - 1):
            raise ValueError(f"block_size is {self.block_size}; it must be a power of two")
        return self


class EngineSpec(RoleSpec):
    """An engine that is compiled. Field names are TensorRT-LLM's where it has them."""

    tokenizer_field: ClassVar[str] = "checkpoint"

    checkpoint: FilePath
    """Hugging Face checkpoint folder; relative paths are relative to the deployment file."""
    precision: Precision
    """Weights: openvino fp32, bf16, int8; tensorrt all but fp32."""
    max_batch_size: Count
    """Upper bound of active requests in the engine."""
    max_num_tokens: Count
    """Upper bound of tokens scheduled per engine step, prompt and generation together."""
    kv_cache: KvCache
    """The paged KV cache."""
    scheduling_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    """How the engine admits requests: with room for the longest answer, or as many as fit now,
    preempting some later (TensorRT-LLM only)."""
    chunked_context: StrictBool = True
    """Compute long prompts over several engine steps (enable_chunked_context)."""
    threads: Parallel | None = None
    """CPU threads of the engine; unset: the cores are divided (target openvino only)."""
    tensorrt: TensorRTEngine | None = None
    """Parallelism, placement and quantisation (target tensorrt)."""

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of its tokenizer.json and chat template."""
        return self.checkpoint

    @property
    def writes(self) -> bool:
        """Whether the engine generates text: it decodes, and gives the logits of all tokens."""
        return True

    @property
    def judges(self) -> bool:
        """Whether scores are made of the engine's logits."""
        return False

    @property
    def placement(self) -> TensorRTEngine:
        """The block tensorrt, or its defaults where there is none."""
        return self.tensorrt or TensorRTEngine()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kv_cache.blocks * self.kv_cache.block_size < self.max_seq_len:
            raise ValueError(
                f"kv_cache.tokens is {self.kv_cache.tokens} but max_seq_len is {self.max_seq_len}; "
                "the pool must hold at least one full sequence of whole blocks"
            )
        if not self.chunked_context and self.max_num_tokens < self.max_seq_len:
            raise ValueError(
                f"chunked_context is false, so max_num_tokens ({self.max_num_tokens}) must be at "
                f"least max_seq_len ({self.max_seq_len}): a prompt has to fit into one step"
            )
        return self
