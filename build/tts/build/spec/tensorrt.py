"""Both sections `tensorrt`: a deployment's GPU and container, an engine's ranks and data."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .section import Count, Parallel, Section

Gpu = Literal["a100-40g", "a100-80g", "l40s", "h100", "h200", "b200", "rtx4090"]


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


Device = Annotated[int, Field(strict=True, ge=0, lt=1024)]


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
