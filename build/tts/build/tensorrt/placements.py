"""Every way to place a deployment's engines on a number of GPUs, as far as the memory plan allows.

A server has both engines on the same GPUs, split over all of them, or each on GPUs of its own; and
there are as many servers as there are GPUs for. Engines are split by tensor parallelism, in powers
of two. Pools are those of the memory plan. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from tts.base.errors import TtsError

from ..spec import Deployment, EngineSpec
from .memory_plan import plan_memory


@dataclass(frozen=True)
class Placement:
    """`servers` alike, each with GPUs of its own."""

    servers: int
    generator: int
    """GPUs of a server that its generator is split over."""
    verifier: int
    shared: bool
    """Whether these are the same GPUs."""

    @property
    def gpus_each(self) -> int:
        """GPUs of a server."""
        return self.generator if self.shared else self.generator + self.verifier

    @property
    def gpus(self) -> int:
        """GPUs of all servers."""
        return self.servers * self.gpus_each

    @property
    def text(self) -> str:
        """The placement in words."""
        servers = "1 server" if self.servers == 1 else f"{self.servers} servers"
        if self.shared and self.generator == 1:
            return f"{servers}, both engines on one GPU"
        if self.shared:
            return f"{servers}, both engines with TP{self.generator} on the same GPUs"
        if self.generator == self.verifier == 1:
            return f"{servers}, a GPU for each engine"
        return f"{servers}, generator TP{self.generator} and verifier TP{self.verifier} apart"


@dataclass(frozen=True)
class Placed:
    """A placement, and one of its servers as a deployment with the planned pools."""

    placement: Placement
    deployment: Deployment


@dataclass(frozen=True)
class Refused:
    """An impossible placement, and why."""

    placement: Placement
    reason: str


def placements(gpus: int) -> list[Placement]:
    """All placements that use every one of so many GPUs: the smallest servers first."""
    widths = [1 << power for power in range(gpus.bit_length())]
    ways = [
        Placement(gpus // width, width, width, shared=True) for width in widths if not gpus % width
    ]
    ways += [
        Placement(gpus // (generator + verifier), generator, verifier, shared=False)
        for generator in widths
        for verifier in widths
        if generator + verifier <= gpus and not gpus % (generator + verifier)
    ]
    return sorted(ways, key=lambda each: (each.gpus_each, not each.shared, each.generator))


def placed(deployment: Deployment, gpus: int) -> tuple[list[Placed], list[Refused]]:
    """The placements on a number of the deployment's GPUs that fit, and those that do not."""
    fits: list[Placed] = []
    refused: list[Refused] = []
    for placement in placements(gpus):
        try:
            fits.append(Placed(placement, place(deployment, placement)))
        except TtsError as error:
            refused.append(Refused(placement, error.message))
    return fits, refused


def place(deployment: Deployment, placement: Placement) -> Deployment:
    """One server of a placement, with the pools that fit; raises a TtsError if it cannot be."""
    first = 0 if placement.shared else placement.generator
    generator, verifier = deployment.compiled_pair()
    there = deployment.model_copy(
        update={
            "generator": _on(generator, 0, placement.generator),
            "verifier": _on(verifier, first, placement.verifier),
        }
    )
    planned = plan_memory(there).engines
    engines = there.engines()
    pools: dict[str, EngineSpec] = {
        role: engines[role].with_pool(each.tokens) for role, each in planned.items()
    }
    return there.model_copy(update=pools)


def _on(spec: EngineSpec, first: int, ranks: int) -> EngineSpec:
    placement = spec.placement
    update = {
        "tensor_parallel": ranks,
        "pipeline_parallel": 1,
        # experts stay divided as the file says where the ranks allow it
        "expert_parallel": placement.expert_parallel
        if not ranks % placement.expert_parallel
        else 1,
        "gpus": (tuple(range(first, first + ranks)),),
    }
    return spec.model_copy(update={"tensorrt": placement.model_copy(update=update)})
