"""Checks of sizes: memory of the GPUs and of the host, and requests in flight."""

from __future__ import annotations

from collections.abc import Iterator

from tts.build.errors import ConfigError
from tts.build.openvino.fits import require_memory
from tts.build.spec import Deployment
from tts.build.tensorrt.memory_plan import check_pools
from tts.serving.contract import Finding

from .build_settings import buildable
from .checkpoints import models_of
from .findings import refused


def memory(deployment: Deployment) -> Iterator[Finding]:
    """Both engines and their KV pools within the memory of each GPU."""
    known = len(list(models_of(deployment))) == len(deployment.engines())
    if deployment.target == "tensorrt" and known and not any(buildable(deployment)):
        why = "the server would fail to load, or shrink the longest sequence and only log it"
        try:
            check_pools(deployment)
        except ConfigError as error:
            yield refused(error, deployment, "memory plan", why)


def machine_memory(deployment: Deployment) -> Iterator[Finding]:
    """Both engines of target openvino within this machine's memory."""
    known = len(list(models_of(deployment))) == len(deployment.engines())
    if deployment.target == "openvino" and known:
        why = "the kernel would end the server, or another process, in the middle of a run"
        try:
            require_memory(deployment)
        except ConfigError as error:
            yield refused(error, deployment, "memory plan", why)


def host_memory(deployment: Deployment) -> Iterator[Finding]:
    """KV blocks kept in host memory are of use to later requests only."""
    for role, spec in deployment.engines().items():
        size = spec.placement.kv_host_gib
        if size and not spec.kv_cache.reuse:
            yield Finding(
                f"tensorrt.kv_host_gib is {size:g}, but kv_cache.reuse is false",
                role,
                "host memory is pinned at the start, and no block in it is ever used again",
                f"Set {role}.kv_cache.reuse to true, or leave kv_host_gib out.",
                "warning",
            )


def requests(deployment: Deployment) -> Iterator[Finding]:
    """No more requests on the wire than the generator runs at a time."""
    spec = deployment.generator
    most = spec.max_batch_size * len(spec.placement.replicas)
    if spec.in_flight_requests > most:
        replicas = " x replicas" if most != spec.max_batch_size else ""
        yield Finding(
            f"is {spec.in_flight_requests}, but max_batch_size{replicas} is {most}",
            "generator.in_flight_requests",
            "the rest waits in the engine's queue, where the orchestrator's priorities end",
            f"Set generator.in_flight_requests to {most}, or raise generator.max_batch_size.",
            "warning",
        )
