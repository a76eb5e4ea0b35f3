"""`tts plan`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rich.console import Console

from tts.base.errors import CheckpointError, ConfigError
from tts.base.machine_limits import MemoryLimit, memory_limit
from tts.build.deployment_edit import write_values
from tts.build.openvino.memory import HostMemoryPlan, plan_host_memory
from tts.build.resolve import resolve_models
from tts.build.spec import Deployment, Role, deployment_file, load_deployment
from tts.build.started.command import command_of
from tts.build.started.memory import budgets, is_known, plan_started
from tts.build.tensorrt.memory_plan import MemoryPlan, plan_memory
from tts.reports.console import consoles, say
from tts.reports.memory_plan import (
    print_budgets,
    print_headroom,
    print_host_memory,
    print_memory_plan,
    print_pools,
)

from .json_output import print_json
from .options.build import Plan

_PARTS = ("weights", "activations", "logits", "workspaces", "graphs", "transfer")


@dataclass(frozen=True, kw_only=True)
class RankUse:
    """What one rank of an engine takes of its GPU."""

    role: Role
    replica: int
    rank: int
    weights_bytes: int
    activations_bytes: int
    logits_bytes: int
    workspaces_bytes: int
    graphs_bytes: int
    """CUDA graphs."""
    transfer_bytes: int
    """Buffers in which KV blocks are transferred."""
    kv_cache_bytes: int


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """What lies on one GPU."""

    device: int
    total_bytes: int
    server_bytes: int
    """The server's own context."""
    free_bytes: int
    ranks: list[RankUse]


@dataclass(frozen=True, kw_only=True)
class PlannedEngine:
    """An engine on GPUs."""

    precision: str
    parameters: int
    kv_cache_tokens: int
    """The planned pool."""
    kv_cache_tokens_in_file: int | None
    """null for engines that are started: they get what is planned."""
    kv_cache_blocks: int
    kv_cache_bytes_per_token: int
    """On the rank that has most."""
    full_sequences: int
    """Sequences of max_seq_len tokens that the pool holds."""
    max_seq_len: int
    beams: int
    """Beams in the middle of their search that the pool holds."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """The memory of a deployment's GPUs, planned from shapes and data sheets."""

    gpu: str
    """The kind of GPU."""
    gpus: list[GpuUse]
    engines: dict[Role, PlannedEngine]
    beams: int
    """Beams that are assumed in flight."""
    step_s: float
    """Estimated time of one search step of so many beams."""
    shared: bool
    """Whether a GPU has a part of both engines."""
    saved_bytes: int
    """Weights that are loaded once, where the generator's engine is the verifier's; else 0."""
    headroom_bytes: int
    """Memory that a GPU may have in use beyond the plan before a pool gets smaller than planned."""
    excess_bytes: dict[int, int]
    """What the pools in the file lack, by GPU."""
    judged_by: str | None
    """What the verifier judges with; null where it is not planned."""


@dataclass(frozen=True, kw_only=True)
class HostEngine:
    """An engine in this machine's memory."""

    precision: str
    weights_bytes: int
    embedding_bytes: int
    kv_cache_bytes: int
    working_bytes: int
    process_bytes: int
    resident_bytes: int
    """The sum."""
    file_bytes: int
    """Its weight file, mapped as well while it loads."""


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """The memory of engines and server on this machine, planned from shapes."""

    engines: dict[Role, HostEngine]
    server_bytes: int
    needed_bytes: int
    """What the kernel cannot take back."""
    resident_bytes: int
    """All of it."""
    available_bytes: int | None
    """The machine's memory, or a lower limit of a control group; null where it is not told."""
    judged_by: str | None


@dataclass(frozen=True, kw_only=True)
class StartedCommand:
    """What starts an engine, without its key."""

    argv: list[str]
    env: dict[str, str]
    """Variables of its environment besides those that there are."""


@dataclass(frozen=True, kw_only=True)
class PlanDocument:
    """A deployment's memory. Nothing was run."""

    deployment: str
    target: str | None
    """null where no engine is compiled or started here."""
    gpu_memory: GpuMemory | None = None
    """Memory of compiled or started engines on GPUs."""
    host_memory: HostMemory | None = None
    """On target openvino only."""
    remotes: dict[Role, list[str]] = field(default_factory=dict)
    """Engines that run elsewhere, by URL: their memory is not planned."""
    commands: dict[Role, StartedCommand] = field(default_factory=dict)
    """The command lines of engines that are started."""
    written: str | None = None
    """The deployment file, if --write has changed it."""


def gpu_memory(plan: MemoryPlan, in_file: Mapping[Role, int]) -> GpuMemory:
    """A plan as a document; `in_file` are the pools of the deployment file, in tokens."""
    return GpuMemory(
        gpu=plan.gpu.name,
        gpus=[
            GpuUse(
                device=gpu.device,
                total_bytes=gpu.total,
                server_bytes=gpu.server,
                free_bytes=gpu.free,
                ranks=[
                    RankUse(
                        role=place.role,
                        replica=place.replica,
                        rank=place.rank,
                        kv_cache_bytes=plan.engines[place.role].tokens
                        * place.memory.kv_bytes_per_token,
                        **{f"{part}_bytes": getattr(place.memory, part) for part in _PARTS},
                    )
                    for place in gpu.ranks
                ],
            )
            for gpu in plan.gpus
        ],
        engines={
            role: PlannedEngine(
                precision=engine.spec.precision,
                parameters=engine.parameters.total,
                kv_cache_tokens=engine.tokens,
                kv_cache_tokens_in_file=in_file.get(role),
                kv_cache_blocks=engine.blocks,
                kv_cache_bytes_per_token=max(rank.kv_bytes_per_token for rank in engine.ranks),
                full_sequences=engine.full_sequences,
                max_seq_len=engine.spec.max_seq_len,
                beams=engine.beams,
            )
            for role, engine in plan.engines.items()
        },
        beams=plan.beams,
        step_s=plan.searched.seconds,
        shared=plan.shared,
        saved_bytes=plan.saved,
        headroom_bytes=plan.headroom,
        excess_bytes=plan.excess(in_file) if in_file else {},
        judged_by=plan.judged_by,
    )


def host_memory(plan: HostMemoryPlan, limit: MemoryLimit | None) -> HostMemory:
    """A plan of this machine's memory as a document."""
    specs = plan.deployment.engines()
    return HostMemory(
        engines={
            role: HostEngine(
                precision=specs[role].precision,
                weights_bytes=engine.copies,
                embedding_bytes=engine.embedding,
                kv_cache_bytes=engine.kv_cache,
                working_bytes=engine.working,
                process_bytes=engine.process,
                resident_bytes=engine.resident,
                file_bytes=engine.file,
            )
            for role, engine in plan.engines.items()
        },
        server_bytes=plan.server,
        needed_bytes=plan.needed,
        resident_bytes=plan.resident,
        available_bytes=limit.size if limit else None,
        judged_by=plan.judged_by,
    )


def plan(options: Plan) -> None:
    """Run `tts plan`."""
    out, _ = consoles()
    spec = load_deployment(options.deployment)
    if spec.engines() or not all(map(is_known, spec.started().values())):
        spec = resolve_models(spec)
    for role, remote in spec.remotes().items():
        say(f"The {role} runs at {', '.join(remote.url)}: its memory is not planned here.")
    document = PlanDocument(
        deployment=spec.name,
        target=spec.target if spec.engines() or spec.started() else None,
        remotes={role: list(remote.url) for role, remote in spec.remotes().items()},
    )
    if spec.started():
        document = _plan_started(out, spec, document, options)
    if spec.engines() and not (spec.started() and options.as_json):
        plan_compiled = _plan_host if spec.target == "openvino" else _plan_gpus
        document = plan_compiled(out, spec, document, options)
    if options.as_json:
        print_json(document)


def _plan_gpus(
    out: Console, deployment: Deployment, document: PlanDocument, options: Plan
) -> PlanDocument:
    planned = plan_memory(deployment)
    pools = {role: engine.kv_cache.tokens for role, engine in deployment.engines().items()}
    planned_pools = {role: engine.tokens for role, engine in planned.engines.items()}
    if not options.as_json:
        print_memory_plan(out, planned)
        print_headroom(out, planned)
        print_pools(out, planned, pools, planned_pools)
    changed_file = None
    if pools != planned_pools and options.write:
        file = deployment_file(options.deployment)
        write_values(file, {(role, "kv_cache", "tokens"): n for role, n in planned_pools.items()})
        changed_file = str(file)
    if pools != planned_pools and not options.as_json:
        hint = f"`tts plan {options.deployment} --write` writes them."
        out.print(
            f"Written to {changed_file}" if changed_file else hint, markup=False, soft_wrap=True
        )
    return replace(document, gpu_memory=gpu_memory(planned, pools), written=changed_file)


def _plan_started(
    out: Console, deployment: Deployment, document: PlanDocument, options: Plan
) -> PlanDocument:
    if options.write:
        raise ConfigError(
            f"Deployment {deployment.name!r}: its engines are started, with the memory that is "
            "planned at each start.",
            hint="Leave --write out. kv_gib in the file states a KV cache in place of the plan's.",
        )
    planned = None
    if deployment.gpu:
        with suppress(CheckpointError):  # of a shape that is not known: the file states its pools
            planned = plan_started(deployment)
    shares, first = budgets(deployment), 8000
    lines = {
        role: command_of(
            deployment,
            role,
            first + place if spec.port == "auto" else spec.port,
            budget=shares[role],
        )
        for place, (role, spec) in enumerate(deployment.started().items())
    }
    document = replace(
        document,
        gpu_memory=gpu_memory(planned, {}) if planned else None,
        commands={
            role: StartedCommand(argv=list(line.argv), env=dict(line.env))
            for role, line in lines.items()
        },
    )
    if options.as_json:
        return document
    if planned:
        print_memory_plan(out, planned)
    else:
        print_budgets(out, deployment, shares)
    out.print("\nThe command lines, as `tts serve` starts them on free ports and with a key:")
    for role, line in lines.items():
        out.print(f"\n# {role}\n{line}", markup=False, highlight=False, soft_wrap=True)
    return document


def _plan_host(
    out: Console, deployment: Deployment, document: PlanDocument, options: Plan
) -> PlanDocument:
    if options.write:
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which KV pools are not "
            "planned, only added up.",
            hint="Set kv_cache.tokens in the file; `tts plan` without --write says what they take.",
        )
    plan, limit = plan_host_memory(deployment), memory_limit()
    if not options.as_json:
        print_host_memory(out, plan, limit)
    return replace(document, host_memory=host_memory(plan, limit))
