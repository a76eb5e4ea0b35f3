"""Section `tensorrt` of an engine: parallelism, placement and quantisation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tts.compat import Self

from .section import Count, Parallel, Section

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
