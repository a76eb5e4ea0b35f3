"""The kinds of GPU that a deployment may name, and the GPUs of a machine that its engines run on.

Memory and speed are for the memory plan and the simulation. What TensorRT-LLM builds for a kind
goes by compute capability, which the contract holds.

TensorRT-LLM has two ways of serving. *Leader mode*: the server is the only rank of every engine.
*Orchestrator mode*: the server spawns a process for each rank, on the GPUs that gpu_device_ids
names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..spec import Deployment, Gpu

GIB = 1024**3
SERVER_GPU = 0
"""The GPU on which the server itself has a CUDA context in orchestrator mode."""


@dataclass(frozen=True)
class Link:
    """What GPUs of one kind in a machine exchange data over."""

    name: str
    bandwidth: float
    """Bytes/s of one GPU in one direction: half of what data sheets give as the total."""
    latency_s: float
    """Time of one all-reduce of little data, inside a CUDA graph. An assumption: public figures go
    from a few microseconds (one-shot kernels over NVLink) to tens (NCCL over PCIe)."""


_NVLINK_S = 10e-6
_PCIE_4 = Link("PCIe 4.0 x16", 32e9, latency_s=30e-6)


@dataclass(frozen=True)
class GpuFacts:
    """One kind of GPU. Rates are the data sheet's dense ones (those with sparsity are twice)."""

    name: str
    memory: int
    """Bytes that CUDA reports as the device's total: less than the card is sold with, since ECC
    and the driver take their part. The smallest total seen in public logs of PyTorch
    ("has a total capacity of ...") and TensorRT-LLM ("total: 79.10 GiB")."""
    bandwidth: float
    """Bytes/s of device memory."""
    flops: float
    """FLOP/s of the tensor cores in fp16 and bf16, accumulated in fp32."""
    fp8_flops: float | None
    """FLOP/s in fp8; None: the GPU has no fp8."""
    link: Link
    """Between the GPUs of a machine: of HGX boards with NVSwitch, where there are such."""
    source: str


GPUS: Mapping[Gpu, GpuFacts] = {
    "a100-40g": GpuFacts(
        "NVIDIA A100 40 GB",
        memory=int(39.38 * GIB),
        bandwidth=1.555e12,
        flops=312e12,
        fp8_flops=None,
        link=Link("NVLink 3", 300e9, _NVLINK_S),
        source="https://www.nvidia.com/en-us/data-center/a100/",
    ),
    "a100-80g": GpuFacts(
        "NVIDIA A100 80 GB",
        memory=int(79.10 * GIB),
        bandwidth=2.039e12,
        flops=312e12,
        fp8_flops=None,
        link=Link("NVLink 3", 300e9, _NVLINK_S),
        source="https://www.nvidia.com/en-us/data-center/a100/",
    ),
    "l40s": GpuFacts(
        "NVIDIA L40S",
        memory=int(44.39 * GIB),
        bandwidth=0.864e12,
        flops=362e12,
        fp8_flops=733e12,
        link=_PCIE_4,
        source="https://www.nvidia.com/en-us/data-center/l40s/",
    ),
    "h100": GpuFacts(
        "NVIDIA H100 SXM 80 GB",
        memory=int(79.10 * GIB),
        bandwidth=3.35e12,
        flops=989e12,
        fp8_flops=1979e12,
        link=Link("NVLink 4", 450e9, _NVLINK_S),
        source="https://www.nvidia.com/en-us/data-center/h100/",
    ),
    "h200": GpuFacts(
        "NVIDIA H200",
        memory=int(139.72 * GIB),
        bandwidth=4.8e12,
        flops=989e12,
        fp8_flops=1979e12,
        link=Link("NVLink 4", 450e9, _NVLINK_S),
        source="https://www.nvidia.com/en-us/data-center/h200/",
    ),
    "b200": GpuFacts(
        "NVIDIA B200",
        memory=int(178.35 * GIB),
        bandwidth=7.67e12,  # of the 7680-bit bus that the driver reports; sold as 8 TB/s
        flops=2250e12,
        fp8_flops=4500e12,
        link=Link("NVLink 5", 900e9, _NVLINK_S),
        source="https://www.nvidia.com/en-us/data-center/dgx-b200/ and "
        "https://github.com/pytorch/ao/pull/4002",
    ),
    "rtx4090": GpuFacts(
        "NVIDIA GeForce RTX 4090",
        memory=int(23.64 * GIB),
        bandwidth=1.008e12,
        flops=165.2e12,
        fp8_flops=330.3e12,
        link=_PCIE_4,
        source="NVIDIA Ada GPU architecture whitepaper, appendix A",
    ),
}
_MODEL: Mapping[Gpu, str] = {kind: kind.partition("-")[0] for kind in GPUS}
"""The word in the names of NVIDIA's GPUs by which each kind is known."""


def kind_of(name: str, memory: int) -> Gpu | None:
    """The kind of a GPU by its name and memory in bytes, as nvidia-smi says them; None: unknown.

    The name alone does not tell an A100 of 40 GB from one of 80, or a laptop's RTX 4090 from the
    card.
    """
    words = re.split(r"[\s_-]+", name.lower())
    fits = [
        kind
        for kind, facts in GPUS.items()
        if facts.memory <= memory and _MODEL[kind] in (*words, "".join(words[-2:]))
    ]
    return max(fits, key=lambda kind: GPUS[kind].memory, default=None)


def gpus_of(deployment: Deployment) -> list[int]:
    """Every GPU that a deployment places an engine on, in order."""
    engines = deployment.engines().values()
    return sorted({gpu for spec in engines for gpus in spec.placement.replicas for gpu in gpus})


def is_orchestrated(deployment: Deployment) -> bool:
    """Whether the server spawns the ranks: everywhere but with all engines on GPU 0 alone.

    Leader mode places its rank on the first GPU that the server sees.
    """
    return deployment.target == "tensorrt" and gpus_of(deployment) != [0]
