"""What `tts plan`, `lint`, `doctor`, `tune` and `simulate` print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tts.base.findings import Finding
from tts.base.machine_limits import MemoryLimit
from tts.build.openvino.memory import HostMemoryPlan
from tts.build.spec import Deployment, Role
from tts.build.started.command import Command
from tts.build.tensorrt.memory_plan import MemoryPlan
from tts.build.tensorrt.placements import Refused
from tts.checks.observation import Observation
from tts.lab.bench.simulated_run import PlacedRun, PlacementAdvice
from tts.lab.simulation.scenario import SimulationOutcome
from tts.lab.tuning.analysis import LoadLevel, Proposal, SaturationPoint
from tts.lab.tuning.tune import Tuned


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
    gpu_memory: GpuMemory | None
    """Memory of compiled or started engines on GPUs."""
    host_memory: HostMemory | None
    """On target openvino only."""
    remotes: dict[Role, list[str]]
    """Engines that run elsewhere, by URL: their memory is not planned."""
    commands: dict[Role, StartedCommand]
    """The command lines of engines that are started."""
    written: str | None
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
                        weights_bytes=place.memory.weights,
                        activations_bytes=place.memory.activations,
                        logits_bytes=place.memory.logits,
                        workspaces_bytes=place.memory.workspaces,
                        graphs_bytes=place.memory.graphs,
                        transfer_bytes=place.memory.transfer,
                        kv_cache_bytes=plan.engines[place.role].tokens
                        * place.memory.kv_bytes_per_token,
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


def plan_document(
    deployment: Deployment,
    *,
    on_gpus: GpuMemory | None = None,
    on_host: HostMemory | None = None,
    commands: Mapping[Role, Command] | None = None,
    written: str | None = None,
) -> PlanDocument:
    """The document of a deployment with this memory."""
    return PlanDocument(
        deployment=deployment.name,
        target=deployment.target if deployment.engines() or deployment.started() else None,
        gpu_memory=on_gpus,
        host_memory=on_host,
        remotes={role: list(remote.url) for role, remote in deployment.remotes().items()},
        commands={
            role: StartedCommand(argv=list(each.argv), env=dict(each.env))
            for role, each in (commands or {}).items()
        },
        written=written,
    )


@dataclass(frozen=True, kw_only=True)
class LintDocument:
    """The findings about a deployment."""

    deployment: str
    errors: int
    """With any, the exit code is 1."""
    warnings: int
    not_checked: int
    """Findings that say what could not be checked."""
    findings: list[Finding]

    @classmethod
    def of(cls, deployment: str, findings: list[Finding]) -> LintDocument:
        """The document of these findings."""
        count = [finding.severity for finding in findings].count
        return cls(
            deployment=deployment,
            errors=count("error"),
            warnings=count("warning"),
            not_checked=count("note"),
            findings=findings,
        )


@dataclass(frozen=True, kw_only=True)
class DoctorDocument:
    """The abilities of this machine."""

    deployment: str | None
    """The one that was looked at; null: all bundled ones."""
    observations: list[Observation]
    """With any that is missing, the exit code is 1."""


@dataclass(frozen=True, kw_only=True)
class TunedEngine:
    """The measurements of one engine, and the conclusions."""

    role: Role
    unit: str
    """The unit of its load."""
    samples: int
    """Measurements."""
    levels: tuple[LoadLevel, ...]
    saturation: SaturationPoint
    proposal: Proposal | None
    """null with too few measurements, or if they were stopped."""


@dataclass(frozen=True, kw_only=True)
class TuneDocument:
    """Throughput over load, and how much to keep in flight."""

    deployment: str
    """The deployment file."""
    result: str
    """The file that keeps the measurements."""
    stopped: bool
    """Whether Ctrl-C ended them early."""
    threads: str | None
    """The engines' CPU threads in words; null where they are not this machine's."""
    engines: list[TunedEngine]
    written: bool
    """Whether --write has changed the deployment file."""

    @classmethod
    def of(cls, file: str, tuned: Tuned, *, written: bool) -> TuneDocument:
        """The document of a result."""
        proposals = {proposal.role: proposal for proposal in tuned.proposals}
        return cls(
            deployment=file,
            result=str(tuned.file),
            stopped=tuned.interrupted is not None,
            threads=tuned.threads,
            engines=[
                TunedEngine(
                    role=engine.role,
                    unit=engine.unit,
                    samples=len(engine.samples),
                    levels=engine.levels,
                    saturation=engine.saturation,
                    proposal=proposals.get(engine.role),
                )
                for engine in tuned.engines
            ],
            written=written,
        )


@dataclass(frozen=True, kw_only=True)
class SimulateDocument:
    """Schedules side by side, simulated."""

    simulated: bool = True
    """Always: compare the outcomes with one another, their seconds are not measurements."""
    deployment: str
    strategy: str
    n: int
    problems: int
    in_flight: int
    """Problems that run at a time at most."""
    outcomes: list[SimulationOutcome]


@dataclass(frozen=True, kw_only=True)
class PlacementsDocument:
    """Placements of both engines side by side, simulated."""

    simulated: bool = True
    """Always: compare the runs with one another, their seconds are not measurements."""
    deployment: str
    gpus: int
    n: int
    runs: list[PlacedRun]
    refused: list[Refused]
    """Placements that are not possible."""
    advice: list[PlacementAdvice]
    """The placement to take, from concurrency to concurrency."""
