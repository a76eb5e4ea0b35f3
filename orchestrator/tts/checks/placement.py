"""Checks of where the engines run: GPUs, their memory, and that of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tts.base.errors import ConfigError
from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.build.openvino.memory import require_memory
from tts.build.spec import EngineSpec, Gpu

from .findings import doubtful, refused

MOST_GPUS: Mapping[Gpu, int] = {
    "a100-40g": 16,  # Google Cloud a2-megagpu-16g; NVIDIA's own have 8
    "a100-80g": 8,  # HGX and DGX A100
    "l40s": 10,  # PCIe servers of 10 slots; NVIDIA's reference (OVX) has 8
    "h100": 8,  # HGX and DGX H100
    "h200": 8,  # HGX H200
    "b200": 8,  # HGX and DGX B200
    "rtx4090": 10,  # PCIe servers of 10 slots
}
"""GPUs in the largest machine that is sold with them."""
MOST_HOST_GIB = 4096
"""Host memory of the largest of these machines (DGX B200, 32 modules of 128 GB), GiB."""


def gpu_numbers(inputs: Inputs) -> Iterator[Finding]:
    """Every GPU that a replica is placed on is one that a machine with such GPUs can have."""
    deployment = inputs.deployment
    kind = deployment.tensorrt.gpu if deployment.tensorrt else deployment.gpu
    if kind is None:
        return
    most = MOST_GPUS[kind]
    devices = {
        role: (_devices(spec), "tensorrt.gpus")
        for role, spec in inputs.deployment.engines().items()
    }
    devices |= {role: (list(spec.devices), "gpus") for role, spec in deployment.started().items()}
    for role, (gpus, field) in devices.items():
        beyond = sorted({gpu for gpu in gpus if gpu >= most})
        if beyond:
            yield Finding(
                f"names GPU {' and '.join(map(str, beyond))}, but machines with {kind} have at "
                f"most {most}, numbered 0 to {most - 1}",
                f"{role}.{field}",
                "one server runs on one machine, and stops where a GPU is not there",
                f"Name GPUs that `nvidia-smi` lists there, from 0 to {most - 1}.",
            )


def replicas(inputs: Inputs) -> Iterator[Finding]:
    """The replicas of an engine are on GPUs of their own."""
    for role, spec in inputs.deployment.engines().items():
        shared = sorted(gpu for gpu, count in Counter(_devices(spec)).items() if count > 1)
        if shared:
            yield doubtful(
                f"puts more than one replica of the {role} on GPU {' and '.join(map(str, shared))}",
                f"{role}.tensorrt.gpus",
                "weights lie there more than once, and the copies take turns: nothing is gained",
                f"Give each replica GPUs of its own, or raise {role}.max_batch_size in its place.",
            )


def host_cache(inputs: Inputs) -> Iterator[Finding]:
    """KV blocks kept in host memory find room there, and are of use to later requests."""
    sizes = {
        role: spec.placement.kv_host_gib * len(_devices(spec))
        for role, spec in inputs.deployment.engines().items()
    }
    if (total := sum(sizes.values())) > MOST_HOST_GIB:
        largest = max(sizes, key=lambda role: sizes[role])
        yield Finding(
            f"takes {total:,.0f} GiB of host memory over all ranks; no host has more than "
            f"{MOST_HOST_GIB:,} GiB",
            f"{largest}.tensorrt.kv_host_gib",
            "it is pinned when the server starts, which fails",
            f"Lower {largest}.tensorrt.kv_host_gib to what the host can spare for every rank.",
        )
    for role, spec in inputs.deployment.engines().items():
        size = spec.placement.kv_host_gib
        if size and not spec.kv_cache.reuse:
            yield doubtful(
                f"tensorrt.kv_host_gib is {size:g}, but kv_cache.reuse is false",
                role,
                "host memory is pinned at the start, and no block in it is ever used again",
                f"Set {role}.kv_cache.reuse to true, or leave kv_host_gib out.",
            )


def _devices(spec: EngineSpec) -> list[int]:
    """The GPU of every rank of every replica."""
    return [gpu for gpus in spec.placement.replicas for gpu in gpus]


def memory(inputs: Inputs) -> Iterator[Finding]:
    """Both engines and their KV pools within the memory of each GPU."""
    all_shapes = len(list(inputs.with_shapes())) == len(inputs.engines)
    if inputs.deployment.tensorrt is None or not all_shapes:
        return
    # imported here: both bring the build for GPUs
    from tts.build.tensorrt.memory_plan import check_pools

    from .build_settings import buildable

    if not any(buildable(inputs)):
        why = "the server would fail to load, or shrink the longest sequence and only log it"
        try:
            check_pools(inputs.deployment, inputs)
        except ConfigError as error:
            yield refused(error, inputs.deployment, "memory plan", why)


def machine_memory(inputs: Inputs) -> Iterator[Finding]:
    """Both engines of target openvino within this machine's memory, once their checkpoints are."""
    here = all(engine.is_here for engine in inputs.engines.values())
    all_shapes = len(list(inputs.with_shapes())) == len(inputs.engines)
    if inputs.deployment.target == "openvino" and all_shapes and here:
        why = "the kernel would end the server, or another process, in the middle of a run"
        try:
            require_memory(inputs.deployment, inputs)
        except ConfigError as error:
            yield refused(error, inputs.deployment, "memory plan", why)
