"""Both sections `tensorrt`: a deployment's GPU and container, an engine's ranks and data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tts.compat import Self

from .section import Count, Parallel, Section

Gpu = Literal["a100-40g", "a100-80g", "l40s", "h100", "h200", "b200", "rtx4090"]
Image = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:@-]*$")]
"""The name of a container image, with its registry and tag."""


class TensorRTSpec(Section):
    """Where TensorRT-LLM runs (targets tensorrt and llmapi)."""

    gpu: Gpu
    """The kind of GPU; engines are built on the kind that serves them."""
    container: Literal["26.04", "26.05", "26.06", "26.07"] = "26.07"
    """Tag of nvcr.io/nvidia/tritonserver:TAG-trtllm-python-py3; these hold TensorRT-LLM 1.2.1."""
    image: Image | None = None
    """Another image, in place of the container's (target llmapi only): one with a later version."""
    launcher: Literal["auto", "mpirun"] = "auto"
    """auto: start the server of engines on GPU 0 alone directly, any other under mpirun. mpirun:
    start both under it, in case that is faster (docs/guides/gpu.md says how to find out)."""


Device = Annotated[int, Field(strict=True, ge=0, lt=1024)]


class Calibration(Section):
    """The data on which fp8 and int4_awq, which need activation scales, are calibrated."""

    dataset: Annotated[str, Field(min_length=1)] = "cnn_dailymail"
    """A set that TensorRT-LLM's quantiser knows by name, or a local folder."""
    samples: Count = 512
    max_length: Count = 512
    """Upper bound of a sample's tokens."""


class TensorRTEngine(Section):
    """What only an engine of TensorRT-LLM has (targets tensorrt and llmapi)."""

    tensor_parallel: Parallel = 1
    pipeline_parallel: Parallel = 1
    expert_parallel: Parallel = 1
    """Among how many groups of the tensor-parallel ranks experts are divided (MoE only)."""
    gpus: tuple[tuple[Device, ...], ...] = ()
    """Devices of each replica, one per rank; none given: one replica on devices 0, 1, ..."""
    kv_precision: Literal["auto", "fp8"] = "auto"
    """auto: 16 bits, as the activations. fp8 needs fp8 weights, or KV reuse would be lost."""
    kv_host_gib: Annotated[float, Field(ge=0)] = 0.0
    """Host memory to which KV blocks are offloaded, GiB."""
    calibration: Calibration = Calibration()

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
