"""The memory plan of a deployment for target tensorrt: what is on which GPU, and both KV pools.

Pure: it reads config.json of both checkpoints (or what is published about them) and nothing else.
Every limit is absolute (max_tokens_in_paged_kv_cache): a fraction of the memory that happens to be
free would depend on which model loads first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tts.base.errors import ConfigError
from tts.base.shown_text import gib

from ..build_plan import QUESTION, STEP
from ..inputs import Inputs, judged_by
from ..model_config import ModelConfig
from ..spec import STARTED, Deployment, EngineSpec, Role
from ..spec.critique_presets import PRESETS
from .commands import check_feasible
from .engine_memory import SERVER_CONTEXT, Parameters, RankMemory, parameters, ranks_of
from .gpus import GPUS, SERVER_GPU, GpuFacts, is_orchestrated
from .kv_split import PoolLimit, Pools, Side, plain_split, share_out
from .step_time import ModelShape, Roofline

RankMemoryOf = Callable[[Role, ModelConfig, EngineSpec], tuple[RankMemory, ...]]
SAFETY = 0.05
"""Share of every GPU that is left free for fragmentation and errors of the estimates."""
KV_FRACTION = 0.99
"""kv_cache_free_gpu_mem_fraction of both engines, beside which a pool has its absolute limit. The
smaller of the two decides; `MemoryPlan.headroom` says how far the fraction is from doing so."""
PLAIN_FRACTION = 0.5
"""The generator's share in the fixed division that the search is compared with."""

# a MATH problem in the middle of its search, in tokens
STEPS = 10
TEMPLATE = 5
"""Tokens that the verifier's dialogue adds to a step."""
CHARACTERS_PER_TOKEN = 4
WRITTEN = 0.5
"""The share of its limit that a critique or a thought before the answer has: a guess."""


@dataclass(frozen=True)
class RankPlace:
    """One rank of one replica, on its GPU."""

    role: Role
    replica: int
    rank: int
    memory: RankMemory


@dataclass(frozen=True)
class GpuPlan:
    """One GPU and everything on it, in bytes."""

    device: int
    total: int
    ranks: tuple[RankPlace, ...]
    kv: Mapping[Role, int]
    """KV caches of all ranks of an engine."""
    server: int
    """The server's own CUDA context, where it is a process beside the ranks."""

    @property
    def fixed(self) -> int:
        """Everything but KV caches."""
        return self.server + sum(place.memory.fixed for place in self.ranks)

    @property
    def per_token(self) -> dict[Role, int]:
        """Bytes that one more token of each pool takes here: replicas have equal pools."""
        each: dict[Role, int] = {"generator": 0, "verifier": 0}
        for place in self.ranks:
            each[place.role] += place.memory.kv_bytes_per_token
        return each

    @property
    def free(self) -> int:
        """Memory left free: the safety margin, and what more KV cache could not use."""
        return self.total - self.fixed - sum(self.kv.values())


@dataclass(frozen=True)
class EnginePlan:
    """One engine of the plan."""

    role: Role
    spec: EngineSpec
    parameters: Parameters
    ranks: tuple[RankMemory, ...]
    tokens: int
    """Size of the pool in whole blocks: max_tokens_in_paged_kv_cache."""
    beams: int
    """Beams in the middle of their search that the pool holds at a time."""

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        return self.tokens // self.spec.kv_cache.block_size

    @property
    def full_sequences(self) -> int:
        """Sequences of max_seq_len tokens that the pool holds."""
        return self.tokens // whole_blocks(self.spec)


@dataclass(frozen=True)
class MemoryPlan:
    """A plan that fits."""

    deployment: str
    gpu: GpuFacts
    engines: Mapping[Role, EnginePlan]
    gpus: tuple[GpuPlan, ...]
    beams: int
    """Beams that the search for the pools assumed in flight."""
    searched: Pools
    plain: Pools
    """The fixed division that the search is compared with. It may hold less than one sequence."""
    shared: bool
    """Whether any GPU has a part of both engines."""
    saved: int
    """Bytes of weights that a verifier of its own would take, where the generator's engine is it;
    else 0."""
    judged_by: str | None
    """What the verifier judges with, in words; None where it is not planned."""

    @property
    def headroom(self) -> int:
        """Bytes that a GPU may have in use beyond this plan before a pool is smaller than planned.

        TensorRT-LLM gives a pool the smaller of its absolute limit and KV_FRACTION of what is free
        when it is allocated, less the transfer buffers; a pool cut short is only seen in the log.
        """
        # the last rank to load finds its own cache, its transfer buffers and what is left free
        return min(
            gpu.free - math.ceil((pool + place.memory.transfer) * (1 / KV_FRACTION - 1))
            for gpu in self.gpus
            for place in gpu.ranks
            for pool in (self.engines[place.role].tokens * place.memory.kv_bytes_per_token,)
        )

    def excess(self, tokens: Mapping[Role, int]) -> dict[int, int]:
        """Bytes by which pools of other sizes would overrun GPUs, the safety margin kept free."""
        over = {}
        for gpu in self.gpus:
            occupied = gpu.fixed + sum(_kv(gpu, tokens).values())
            if occupied > (usable := _usable(self.gpu)):
                over[gpu.device] = occupied - usable
        return over


def plan_memory(
    deployment: Deployment,
    inputs: Inputs | None = None,
    *,
    rank_memory: RankMemoryOf | None = None,
    stated: Mapping[Role, int] | None = None,
) -> MemoryPlan:
    """Place the engines on their GPUs and divide the remaining memory between their KV caches.

    One engine in both roles has one pool, as large as both roles' parts together. `rank_memory`
    knows what the ranks of an engine take; unset: TensorRT-LLM's. `stated` are the tokens of pools
    that are not to be planned. Raises ConfigError naming the field, its value and what to do.
    """
    if deployment.tensorrt is None:
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is {deployment.target!r}; a memory plan is "
            "made for target tensorrt only.",
            hint="On a CPU kv_cache.tokens is bounded by the machine's memory: set it by hand.",
        )
    gpu = GPUS[deployment.tensorrt.gpu]
    specs = deployment.engines()
    shapes = (inputs or Inputs(deployment)).shapes()
    for role in specs:
        check_feasible(deployment, role, shapes[role])
    if rank_memory is None:
        rank_memory = lambda _, shape, spec: ranks_of(shape, spec)  # noqa: E731
    ranks = {role: rank_memory(role, shapes[role], spec) for role, spec in specs.items()}
    placed = _placed(deployment, gpu, ranks)
    for here in placed:
        _check_fixed(deployment, gpu, here)
    limits = [_limit(deployment, gpu, here) for here in placed if here.ranks]
    served = _served_by(deployment)
    sides = {role: _side(deployment, role, shapes[at], gpu) for role, at in served.items()}
    # a pool that is stated is that of both roles
    halves = 2 if deployment.shares_engine else 1
    parts = {role: stated[at] // halves for role, at in served.items() if stated and at in stated}
    pools = share_out(sides, limits, parts)
    if pools is None:
        raise _too_small(deployment, gpu, placed, stated or {})
    tokens = dict.fromkeys(specs, 0)
    beams: dict[Role, int] = {}
    for role, side in sides.items():
        engine, part = served[role], getattr(pools, role)
        tokens[engine] += part
        beams[engine] = min(side.holds(part), beams.get(engine, side.holds(part)))
    judge = deployment.roles().get("verifier") if "verifier" in served else None
    return MemoryPlan(
        deployment=deployment.name,
        gpu=gpu,
        engines={
            role: EnginePlan(
                role=role,
                spec=spec,
                parameters=parameters(shapes[role]),
                ranks=ranks[role],
                tokens=tokens[role],
                beams=beams[role],
            )
            for role, spec in specs.items()
        },
        gpus=tuple(replace(here, kv=_kv(here, tokens)) for here in placed),
        beams=deployment.generator.in_flight_requests,
        searched=pools,
        plain=plain_split((sides["generator"], sides["verifier"]), limits, PLAIN_FRACTION)
        if len(sides) == 2
        else pools,
        shared=len(specs) > 1 and any(all(limit.per_token) for limit in limits),
        saved=sum(place.memory.weights for here in placed for place in here.ranks)
        if deployment.shares_engine
        else 0,
        judged_by=judged_by(shapes[served["verifier"]], judge) if judge else None,
    )


def check_pools(deployment: Deployment, inputs: Inputs | None = None) -> None:
    """Refuse a deployment whose own kv_cache.tokens do not fit; raises ConfigError."""
    plan = plan_memory(deployment, inputs)
    over = plan.excess({role: spec.kv_cache.tokens for role, spec in deployment.engines().items()})
    if over:
        device, excess = max(over.items(), key=lambda item: item[1])
        sizes = " and ".join(
            f"{role}.kv_cache.tokens = {spec.kv_cache.tokens}"
            for role, spec in deployment.engines().items()
        )
        raise ConfigError(
            f"Deployment {deployment.name!r}: {sizes} take {gib(excess)} more than GPU {device} "
            f"({plan.gpu.name}) has left.",
            hint=f"`tts plan {deployment.argument} --write` sets both to what fits.",
        )


def _placed(
    deployment: Deployment, gpu: GpuFacts, ranks: Mapping[Role, tuple[RankMemory, ...]]
) -> list[GpuPlan]:
    """What lies on each GPU before any KV cache."""
    servers = {SERVER_GPU: SERVER_CONTEXT} if is_orchestrated(deployment) else {}
    places: dict[int, list[RankPlace]] = {device: [] for device in servers}
    for role, spec in deployment.engines().items():
        for replica, devices in enumerate(spec.placement.replicas):
            for rank, device in enumerate(devices):
                place = RankPlace(role, replica, rank, ranks[role][rank])
                places.setdefault(device, []).append(place)
    return [
        GpuPlan(device, gpu.memory, tuple(here), {}, servers.get(device, 0))
        for device, here in sorted(places.items())
    ]


def _check_fixed(deployment: Deployment, gpu: GpuFacts, here: GpuPlan) -> None:
    if here.fixed < _usable(gpu):
        return
    parts = [
        f"{place.role}: weights {gib(place.memory.weights)}, activations "
        f"{gib(place.memory.activations)}, logits {gib(place.memory.logits)}, workspaces "
        f"{gib(place.memory.workspaces)}, graphs {gib(place.memory.graphs)}, KV transfer "
        f"{gib(place.memory.transfer)}"
        for place in here.ranks
    ]
    if here.server:
        parts.append(f"the server itself: {gib(here.server)}")
    roles = " and ".join(sorted({place.role for place in here.ranks}))
    raise ConfigError(
        f"Deployment {deployment.name!r}: {roles} do not fit GPU {here.device} ({gpu.name}, "
        f"{gib(_usable(gpu))} usable) even without a KV cache: {'; '.join(parts)}.",
        hint=_remedies(deployment, here),
    )


def _too_small(
    deployment: Deployment, gpu: GpuFacts, placed: list[GpuPlan], stated: Mapping[Role, int]
) -> ConfigError:
    """The refusal of a plan whose pools would not hold one sequence each, or what is stated."""
    specs = deployment.engines()
    least = {role: stated.get(role, _least(deployment, spec)) for role, spec in specs.items()}

    def lacking(here: GpuPlan) -> int:
        return sum(_kv(here, least).values()) - _capacity(gpu, here)

    here = max(placed, key=lacking)
    needs = " and ".join(
        f"{gib(least[role] * each)} for {role}.max_seq_len = {specs[role].max_seq_len}"
        for role, each in here.per_token.items()
        if each
    )
    pools = "the pools as stated take" if stated else "one sequence of full length takes"
    return ConfigError(
        f"Deployment {deployment.name!r}: {gib(_capacity(gpu, here))} are left for KV "
        f"caches on GPU {here.device} ({gpu.name}), but {pools} {needs}.",
        hint=_remedies(deployment, here) + " Or lower max_seq_len.",
    )


def _remedies(deployment: Deployment, here: GpuPlan) -> str:
    roles = sorted({place.role for place in here.ranks})
    block = "" if deployment.target in STARTED else "tensorrt."
    apart = f"Put the engines on different GPUs ({block}gpus), " if len(roles) > 1 else ""
    more = "set" if apart else "Set"
    return (
        f"{apart}{more} a smaller precision, lower max_batch_size and max_num_tokens, split a "
        f"model ({block}tensor_parallel), or choose a larger {block}gpu."
    )


def _usable(gpu: GpuFacts) -> int:
    return int(gpu.memory * (1 - SAFETY))


def _served_by(deployment: Deployment) -> dict[Role, Role]:
    """The engine of each role that has one here."""
    engines: dict[Role, Role] = {role: role for role in deployment.engines()}
    return engines | ({"verifier": "generator"} if deployment.shares_engine else {})


def _capacity(gpu: GpuFacts, here: GpuPlan) -> int:
    return _usable(gpu) - here.fixed


def _limit(deployment: Deployment, gpu: GpuFacts, here: GpuPlan) -> PoolLimit:
    each = {role: here.per_token[engine] for role, engine in _served_by(deployment).items()}
    return PoolLimit(_capacity(gpu, here), (each.get("generator", 0), each.get("verifier", 0)))


def _kv(here: GpuPlan, tokens: Mapping[Role, int]) -> dict[Role, int]:
    return {role: size * here.per_token[role] for role, size in tokens.items()}


def _side(deployment: Deployment, role: Role, shape: ModelConfig, gpu: GpuFacts) -> Side:
    spec = deployment.engines()[_served_by(deployment)[role]]
    beams = math.ceil(deployment.generator.in_flight_requests / len(spec.placement.replicas))
    if role == "generator":
        system_prompt = deployment.generator.system_prompt or ""
        prompt = QUESTION + len(system_prompt) // CHARACTERS_PER_TOKEN
        own, new, decoded = STEPS // 2 * STEP, 1, STEP
        own += int((deployment.generator.thinking.budget_tokens or 0) * WRITTEN)
    else:
        verifier, decoded = deployment.verifier_model, 0
        text = verifier.prompt or ""
        if verifier.facts.writes:
            text = text or PRESETS[verifier.critique.preset or "judge"].user
            decoded = int(verifier.critique.max_tokens * WRITTEN)
            beams *= verifier.critique.samples
        # a prompt's text before the steps is shared, and the text behind them asked for each score
        before, _, after = text.partition("{steps}")
        prompt = QUESTION + len(before) // CHARACTERS_PER_TOKEN
        own = STEPS // 2 * (STEP + TEMPLATE)
        new = STEP + TEMPLATE + len(after) // CHARACTERS_PER_TOKEN
    # sequences as short as the demo pair's scale all lengths down
    scale = min(1.0, spec.max_seq_len / (prompt + own + decoded))
    return Side(
        steps=Roofline(gpu, ModelShape.of(shape, spec.precision, spec.placement)),
        beams=beams,
        block=spec.kv_cache.block_size,
        reuse=spec.kv_cache.reuse,
        shared=int(prompt * scale),
        own=int(own * scale),
        new=math.ceil(new * scale),
        decoded=int(decoded * scale),
        max_batch_size=spec.max_batch_size,
        max_num_tokens=spec.max_num_tokens,
        minimum=_least(deployment, spec),
        # every beam in flight at full length, and as many that wait for the other engine
        useful=2 * beams * whole_blocks(spec),
    )


def whole_blocks(spec: EngineSpec) -> int:
    """Tokens of the blocks that hold one sequence of max_seq_len."""
    size = spec.kv_cache.block_size
    return math.ceil(spec.max_seq_len / size) * size


def _least(deployment: Deployment, spec: EngineSpec) -> int:
    """Tokens of the smallest pool: a sequence, and of an engine that is started and reuses nothing
    two steps, one computed while the other's blocks are given back.
    """
    whole = deployment.target in STARTED and not spec.kv_cache.reuse
    steps = 2 * spec.max_num_tokens if whole else 0
    size = spec.kv_cache.block_size
    return max(whole_blocks(spec), math.ceil(steps / size) * size)
