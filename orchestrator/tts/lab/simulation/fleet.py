"""Servers of deployments on simulated GPUs: engines, caches and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.tensorrt.gpus import gpus_of
from tts.endpoints.routing import PolicyName, Router, routing_policy
from tts.engines.simulated import (
    GPUS,
    Affine,
    Engine,
    Gpus,
    PagedCache,
    Roofline,
    Sharing,
    StepTime,
    Totals,
)

from .pairs import shapes_of
from .server import Server


@dataclass(frozen=True)
class ServerGroup:
    """Servers that are alike, each with GPUs, engines and caches of its own.

    Groups lie on the same GPUs, from the first on: of two groups each GPU has a part of both.
    """

    deployment: Deployment
    count: int = 1
    name: str = ""

    @property
    def gpus(self) -> int:
        """GPUs of all its servers."""
        return self.count * _span(self.deployment)


@dataclass(frozen=True)
class Pair:
    """The engines of one server. Of several replicas of an engine the least loaded is asked."""

    name: str
    group: ServerGroup
    generators: Sequence[Engine]
    verifiers: Sequence[Engine]


@dataclass(frozen=True)
class Fleet:
    """All servers, and the orchestrator's process in front of them."""

    server: Server
    pairs: Sequence[Pair]

    def totals(self, role: Role) -> Totals:
        """Of all engines of a role together, but for the busy time, which is their mean."""
        engines = [
            engine
            for pair in self.pairs
            for engine in (pair.generators if role == "generator" else pair.verifiers)
        ]
        added = Totals()
        for field in fields(Totals):
            of_all = sum(getattr(engine.totals, field.name) for engine in engines)
            setattr(added, field.name, of_all)
        added.busy_s /= len(engines)
        return added


def fleet_of(
    groups: Sequence[ServerGroup],
    sharing: Sharing,
    call_s: float,
    cancel_s: float,
    *,
    whole_head: bool = False,
    fits: Mapping[Role, Affine] | None = None,
) -> Fleet:
    """The servers of these groups; step times are those of `fits` where it is given.

    Raises CheckpointError for a model whose shape is not known.
    """
    pairs: list[Pair] = []
    engines: list[Engine] = []
    devices: list[frozenset[int]] = []
    for group in groups:
        times = fits or _times(group.deployment, whole_head=whole_head)
        for number in range(group.count):
            first = number * _span(group.deployment)
            made: dict[Role, list[Engine]] = {}
            for role, spec in group.deployment.engines().items():
                made[role] = [_engine(spec, times[role]) for _ in spec.placement.replicas]
                engines += made[role]
                devices += [
                    frozenset(first + device for device in replica)
                    for replica in spec.placement.replicas
                ]
            name = f"{group.name or 'server'}-{number}"
            pairs.append(Pair(name, group, made["generator"], made["verifier"]))
    gpus = [
        Gpus([engines[i] for i in members], sharing, [devices[i] for i in members])
        for members in connected(devices)
    ]
    return Fleet(Server(gpus, call_s, cancel_s), pairs)


def router_of(fleet: Fleet, policy: PolicyName, threshold: int) -> Router:
    """The router in front of the servers; of by-concurrency the first group is that for few."""
    names = list(dict.fromkeys(pair.group.name for pair in fleet.pairs))
    few, many = names[0], names[-1]
    router = Router(routing_policy(policy, few=few, many=many, threshold=threshold))
    for pair in fleet.pairs:
        router.add(pair.name, pair.group.name)
    return router


def _times(deployment: Deployment, *, whole_head: bool) -> Mapping[Role, StepTime]:
    assert deployment.tensorrt is not None
    gpu = GPUS[deployment.tensorrt.gpu]
    shapes = shapes_of(deployment, cut=not whole_head)
    return {role: Roofline(gpu, shape) for role, shape in shapes.items()}


def _engine(spec: EngineSpec, step_time: StepTime) -> Engine:
    cache = spec.kv_cache
    return Engine(
        step_time,
        PagedCache(cache.blocks, cache.block_size, reuse=cache.reuse),
        spec.max_batch_size,
        spec.max_num_tokens,
    )


def _span(deployment: Deployment) -> int:
    """GPUs that one server needs, from its first device to its last."""
    return gpus_of(deployment)[-1] + 1


def connected(devices: Sequence[frozenset[int]]) -> list[list[int]]:
    """Places of the engines that have GPUs in common, directly or through others."""
    parts: list[tuple[set[int], list[int]]] = []
    for number, mine in enumerate(devices):
        touched = [part for part in parts if part[0] & mine]
        parts = [part for part in parts if not part[0] & mine]
        union = set(mine).union(*(used for used, _ in touched))
        parts.append((union, sorted([number, *(each for _, them in touched for each in them)])))
    return [members for _, members in sorted(parts, key=lambda part: part[1])]
