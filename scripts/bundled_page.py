"""The reference page of the bundled deployments: their models, and the memory that is planned."""

from __future__ import annotations

from tts.build.openvino.memory import MIB, plan_host_memory
from tts.build.spec import Deployment, EngineSpec, RemoteSpec, bundled_deployments, load_deployment
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.memory_plan import plan_memory

Rows = list[list[str]]
MODELS = ["deployment", "target", "generator", "verifier", "format", "runs on", "precision"]
GPU_MEMORY = [
    "deployment",
    "GPU",
    "weights",
    "activations, logits",
    "workspaces, transfer",
    "server",
    "generator KV",
    "verifier KV",
    "free",
    "room",
    "generator pool, tokens",
    "verifier pool, tokens",
]
HOST_MEMORY = ["deployment", "judges with", "generator", "verifier", "needed"]
FETCHED = "smollm2-135m-cpu"
"""Its checkpoint has to be there to be planned; `scripts/fetch_smollm2` brings it."""


def model_rows() -> Rows:
    """What each deployment serves, and on what."""
    rows = []
    for name in bundled_deployments():
        wanted = load_deployment(name)
        verifier = wanted.verifier_model
        models = [_model(wanted.generator), _model(verifier), f"`{verifier.format}`"]
        precisions = dict.fromkeys(_precision(engine) for engine in wanted.engines().values())
        shown = [*models, _machine(wanted), "; ".join(precisions)]
        rows.append([f"`{name}`", f"`{wanted.target}`", *shown])
    return rows


def gpu_rows() -> Rows:
    """The memory plan of each deployment for GPUs, in GiB: a row for each GPU."""
    rows = []
    for name in bundled_deployments():
        if not load_deployment(name).tensorrt:
            continue
        plan = plan_memory(load_deployment(name))
        pools = [f"{engine.tokens:,}" for engine in plan.engines.values()]
        for number, gpu in enumerate(plan.gpus):
            memory = [place.memory for place in gpu.ranks]
            sizes = (
                sum(rank.weights for rank in memory),
                sum(rank.activations + rank.logits for rank in memory),
                sum(rank.workspaces + rank.transfer for rank in memory),
                gpu.server,
                *gpu.kv.values(),
                gpu.free,
                plan.headroom,
            )
            shown = [f"{size / GIB:.2f}" for size in sizes]
            named = ["", str(gpu.device), *shown, "", ""]
            if number == 0:
                named = [f"`{name}`", str(gpu.device), *shown, *pools]
            rows.append(named)
    return rows


def host_rows() -> Rows:
    """What each pair of target `openvino` needs, in MiB."""
    rows = []
    for name in bundled_deployments():
        wanted = load_deployment(name)
        if wanted.target == "openvino" and not wanted.remotes() and name != FETCHED:
            plan = plan_host_memory(wanted)
            sizes = [plan.engines["generator"].needed, plan.engines["verifier"].needed, plan.needed]
            rows.append(
                [f"`{name}`", plan.judged_by or "", *(f"{size / MIB:,.0f}" for size in sizes)]
            )
    return rows


def _model(side: EngineSpec | RemoteSpec) -> str:
    if isinstance(side, RemoteSpec):
        return "at a URL"
    return side.checkpoint.name.removesuffix(".gguf")  # its folder is called so once it is imported


def _precision(engine: EngineSpec) -> str:
    fp8_cache = engine.tensorrt and engine.tensorrt.kv_precision == "fp8"
    return f"{engine.precision}, KV cache fp8" if fp8_cache else engine.precision


def _machine(wanted: Deployment) -> str:
    if wanted.tensorrt is None:
        return "CPU" if wanted.target == "openvino" else "its servers"
    engines = wanted.engines().values()
    used = {device for engine in engines for each in engine.placement.replicas for device in each}
    return f"{len(used)} x {wanted.tensorrt.gpu}"
