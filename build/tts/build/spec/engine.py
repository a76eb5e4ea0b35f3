"""Fields of an engine that is compiled here; both sections `tensorrt`, of deployment and engine."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StrictBool, model_validator

from tts.base.choices import Precision

from .section import Count, FilePath, Parallel, RoleSpec, Section

Gpu = Literal["a100-40g", "a100-80g", "l40s", "h100", "h200", "b200", "rtx4090"]
Device = Annotated[int, Field(strict=True, ge=0, lt=1024)]


class TensorRTSpec(Section):
    """The GPU that TensorRT-LLM runs on (target tensorrt), and its container."""

    gpu: Gpu
    """The GPU model; engines must be built on the model that serves them."""
    container: Literal["26.04", "26.05", "26.06", "26.07"] = "26.07"
    """Tag of nvcr.io/nvidia/tritonserver:TAG-trtllm-python-py3; these hold TensorRT-LLM 1.2.1
    (target tensorrt only)."""
    launcher: Literal["auto", "mpirun"] = "auto"
    """`auto` uses mpirun only where ranks must be spawned (anything but all on GPU 0);
    `mpirun` always does (docs/guides/gpu.md, target tensorrt only)."""


class CalibrationSpec(Section):
    """The data on which fp8 and int4_awq, which need activation scales, are calibrated."""

    dataset: Annotated[str, Field(min_length=1)] = "cnn_dailymail"
    """A set that TensorRT-LLM's quantiser knows by name, or a local folder."""
    samples: Count = 512
    """Number of samples."""
    max_length: Count = 512
    """Upper bound of a sample's tokens."""


class TensorRTEngine(Section):
    """Settings that only TensorRT-LLM has (target tensorrt)."""

    tensor_parallel: Parallel = 1
    """GPUs among which every matrix is divided."""
    pipeline_parallel: Parallel = 1
    """GPUs among which the layers are divided."""
    expert_parallel: Parallel = 1
    """Groups of tensor-parallel ranks among which experts are divided (MoE only)."""
    gpus: tuple[tuple[Device, ...], ...] = ()
    """Devices of each replica, one per rank; unset: one replica on devices 0, 1, ..."""
    kv_precision: Literal["auto", "fp8"] = "auto"
    """`auto` is 16 bits; `fp8` needs precision fp8."""
    kv_host_gib: Annotated[float, Field(ge=0)] = 0.0
    """Host memory to which KV blocks are offloaded, in GiB."""
    calibration: CalibrationSpec = CalibrationSpec()
    """The data with which activation scales are calibrated (fp8, int4_awq)."""

    @property
    def ranks(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """Devices of every replica, in rank order."""
        return self.gpus or (tuple(range(self.ranks)),)

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.tensor_parallel % self.expert_parallel:
            raise ValueError(
                f"expert_parallel is {self.expert_parallel}; it must divide tensor_parallel "
                f"({self.tensor_parallel})"
            )
        for devices in self.gpus:
            if len(devices) != self.ranks or len(set(devices)) != len(devices):
                raise ValueError(
                    f"gpus names {list(devices)} for a replica; it must name {self.ranks} "
                    "different devices (tensor_parallel x pipeline_parallel)"
                )
        return self


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
    """Compute long prompts over several engine steps (enable_chunked_context).

    Target openvino reuses prefixes only with it.
    """
    threads: Parallel | None = None
    """CPU threads of the engine; unset: the cores are divided (target openvino only)."""
    tensorrt: TensorRTEngine | None = None
    """Parallelism, placement and quantisation (target tensorrt)."""

    @property
    def writes(self) -> bool:
        """Whether the engine generates text: it decodes, and gives the logits of all tokens."""
        return True

    @property
    def judges(self) -> bool:
        """Whether scores are made of the engine's logits."""
        return False

    def with_pool(self, tokens: int) -> Self:
        """A copy with a KV cache of so many tokens."""
        cache = self.kv_cache.model_copy(update={"tokens": tokens})
        return self.model_copy(update={"kv_cache": cache})

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
