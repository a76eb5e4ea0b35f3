"""The memory of a pair: what its KV pools take, and other divisions of it. Pure; sizes in bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.started.memory import budgets, planned
from tts.build.tensorrt.memory_plan import plan_memory
from tts.driver.policy import share_gpus

from .cells import CellEngines

WORKING = "working space and processes"
"""Memory that is neither weights nor a KV pool."""


@dataclass(frozen=True)
class PairMemory:
    """What a deployment's pair takes, over all of its GPUs or on its CPU host."""

    fixed: Mapping[str, int]
    """All memory but the KV pools, by kind."""
    per_token: Mapping[Role, int]
    """What one token in a pool takes, over all ranks and replicas of its engine."""
    pools: int
    """Both KV pools together."""
    shared: bool
    """Whether one pool can grow at the expense of the other."""


def pair_memory(deployment: Deployment) -> PairMemory:
    """What a deployment takes, by the memory plan of its target; raises ConfigError if none fits.

    Raises CheckpointError for a config.json that cannot be used.
    """
    plan = _on_gpus
    if deployment.started():
        plan = _started
    elif deployment.target == "openvino":
        plan = _on_host
    fixed, per_token, shared = plan(deployment)
    pools = sum(
        per_token[role] * whole_blocks(spec, spec.kv_cache.tokens)
        for role, spec in planned(deployment).engines().items()
    )
    return PairMemory(fixed, per_token, pools, shared)


def generator_share(deployment: Deployment, memory: PairMemory) -> float:
    """The generator's share of the KV memory as the deployment has it."""
    spec, _ = deployment.compiled_pair()
    own_bytes = memory.per_token["generator"] * whole_blocks(spec, spec.kv_cache.tokens)
    return own_bytes / memory.pools


def divided(
    deployment: Deployment, memory: PairMemory, share: float, scale: float = 1.0
) -> Deployment:
    """The deployment with another division of its KV memory, or of `scale` times as much.

    The generator gets `share` of it, in whole blocks, and the verifier the rest; neither gets less
    than one sequence of max_seq_len.
    """
    generator, verifier = deployment.compiled_pair()
    total = scale * memory.pools
    first, second = memory.per_token["generator"], memory.per_token["verifier"]
    most = (total - second * least_tokens(verifier)) / first
    tokens = _within(generator, min(share * total / first, most))
    rest = _within(verifier, (total - tokens * first) / second)
    return deployment.model_copy(
        update={"generator": generator.with_pool(tokens), "verifier": verifier.with_pool(rest)}
    )


def least_tokens(spec: EngineSpec) -> int:
    """Tokens of the smallest pool: the blocks of one sequence of max_seq_len."""
    size = spec.kv_cache.block_size
    return math.ceil(spec.max_seq_len / size) * size


def whole_blocks(spec: EngineSpec, tokens: float) -> int:
    """Tokens rounded down to whole blocks."""
    size = spec.kv_cache.block_size
    return int(tokens) // size * size


def _within(spec: EngineSpec, tokens: float) -> int:
    return max(least_tokens(spec), whole_blocks(spec, tokens))


def _on_host(deployment: Deployment) -> tuple[dict[str, int], dict[Role, int], bool]:
    plan, specs = plan_host_memory(deployment), deployment.engines()
    fixed = {WORKING: plan.server}
    for role, engine in plan.engines.items():
        fixed[f"{role}: weights"] = engine.copies + engine.embedding
        fixed[WORKING] += engine.working + engine.process
    per_token = {
        role: engine.kv_cache // whole_blocks(specs[role], specs[role].kv_cache.tokens)
        for role, engine in plan.engines.items()
    }
    return fixed, per_token, True


def _started(deployment: Deployment) -> tuple[dict[str, int], dict[Role, int], bool]:
    fixed, per_token = {}, {}
    for role, budget in budgets(deployment).items():
        fixed[f"{role}: weights"] = budget.weights or 0
        per_token[role] = budget.kv_bytes // (budget.kv_tokens or 1)
    return fixed, per_token, deployment.gpu is None or share_gpus(deployment)


def _on_gpus(deployment: Deployment) -> tuple[dict[str, int], dict[Role, int], bool]:
    plan = plan_memory(deployment)
    fixed = {WORKING: sum(gpu.server for gpu in plan.gpus)}
    per_token: dict[Role, int] = dict.fromkeys(deployment.engines(), 0)
    for place in (place for gpu in plan.gpus for place in gpu.ranks):
        memory, role = place.memory, place.role
        per_token[role] += memory.kv_bytes_per_token
        weights = f"{role}: weights"
        fixed[weights] = fixed.get(weights, 0) + memory.weights
        fixed[WORKING] += memory.fixed - memory.weights
    return fixed, per_token, plan.shared


def deployment_of(spec: Deployment, memory: PairMemory, engines: CellEngines) -> Deployment:
    """The deployment whose server a cell needs."""
    if engines.share is not None:
        spec = divided(spec, memory, engines.share)
    if not engines.reuse:
        pools: dict[str, EngineSpec] = {
            role: each.model_copy(
                update={"kv_cache": each.kv_cache.model_copy(update={"reuse": False})}
            )
            for role, each in spec.engines().items()
        }
        spec = spec.model_copy(update=pools)
    return spec
