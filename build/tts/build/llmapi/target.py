"""Target llmapi: nothing is compiled; what would fail at load is refused, the rest is recorded.

`llm_arguments` is what an engine's process opens `LLM` with.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from .. import paths
from ..build_plan import BuildPlan, VerificationOutcome, check_length, new_plan
from ..checkpoint import FileStamp
from ..errors import BuildError
from ..inputs import EngineInputs
from ..manifest import CONFIG_FILE, BuildSettings, EngineConfig, read_engine_config, write_record
from ..spec import EngineSpec, Precision
from ..tensorrt.feasibility import check_feasible
from ..tensorrt.gpus import GIB
from ..tensorrt.memory_plan import KV_FRACTION, check_pools
from .version import check_version

PACKAGE = "tensorrt_llm"


def settings_for(inputs: EngineInputs) -> BuildSettings:
    """The settings that the manifest would record now, beside the checkpoint."""
    spec = inputs.spec
    labels: JsonValue = [[token, weight] for token, weight in inputs.label_weights.items()]
    return {
        "target": inputs.deployment.target,
        "role": inputs.role,
        "precision": spec.precision,
        "labels": labels or None,
        "tensor_parallel": spec.placement.tensor_parallel,
        "pipeline_parallel": spec.placement.pipeline_parallel,
        "expert_parallel": spec.placement.expert_parallel,
    }


def plan_engine(inputs: EngineInputs) -> BuildPlan:
    """Check everything that can be known without a GPU; raises CheckpointError, ConfigError."""
    check_feasible(inputs.deployment, inputs.role, inputs.shape)
    check_length(inputs)
    inputs.require_weights()
    return new_plan(inputs, settings_for(inputs))


def engine_config(inputs: EngineInputs, folder: Path) -> EngineConfig:
    """The configuration of the engine that `folder` describes."""
    return read_engine_config(folder)


def prepare(plans: Sequence[BuildPlan], verify: bool | None) -> None:
    """Refuse a pair that does not fit its GPUs, and a TensorRT-LLM here that is too old."""
    if verify:
        raise BuildError(
            "Target llmapi compiles nothing that could be compared with transformers.",
            hint="Leave --verify out.",
        )
    installed = installed_version()
    if installed and (problem := check_version(installed)):
        raise BuildError(problem, hint="Use a later image.")
    check_pools(plans[0].deployment)


def make_engine(
    plan: BuildPlan,
    stamps: Sequence[FileStamp],
    folder: Path,
    verify: bool | None,
    say: Callable[[str], None],
) -> VerificationOutcome:
    """Describe the engine in `folder`; TensorRT-LLM loads the checkpoint itself."""
    version = installed_version()
    here = f"TensorRT-LLM {version} is installed" if version else "TensorRT-LLM is not installed"
    say(f"{plan.role}: nothing to compile; {here} here")
    write_record(folder, CONFIG_FILE, plan.config)
    return VerificationOutcome(None, "TensorRT-LLM loads the checkpoint as it is")


def preview(inputs: EngineInputs) -> list[str]:
    """No command to run, only the checks, and the file in which they are recorded."""
    role, spec = inputs.role, inputs.spec
    folder = paths.engine_dir(inputs.deployment.name, role)
    check_length(inputs)
    return [
        f"# {role}: nothing to compile: TensorRT-LLM loads {spec.checkpoint} in {spec.precision}",
        f"# {role}: the checkpoint is checked, and recorded in {folder}",
    ]


def installed_version() -> str | None:
    """The version of TensorRT-LLM installed for this Python; None if there is none."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


DTYPES: dict[Precision, str] = {"fp16": "float16", "bf16": "bfloat16"}


def llm_arguments(spec: EngineSpec) -> dict[str, JsonValue]:
    """The arguments that `LLM` is opened with; passed on unchecked.

    The KV pool is a number of tokens, because a share of the free memory would depend on which
    engine loads first. A verifier that does not write has no CUDA graphs: they are for steps that
    only decode, and its single token comes out of the prompt's last step.
    """
    place, cache = spec.placement, spec.kv_cache
    arguments: dict[str, JsonValue] = {
        "model": str(spec.checkpoint),
        "skip_tokenizer_init": True,
        "trust_remote_code": False,
        "dtype": DTYPES[spec.precision],
        "tensor_parallel_size": place.tensor_parallel,
        "pipeline_parallel_size": place.pipeline_parallel,
        "max_batch_size": spec.max_batch_size,
        "max_num_tokens": spec.max_num_tokens,
        "max_seq_len": spec.max_seq_len,
        "max_beam_width": 1,
        "enable_chunked_prefill": spec.chunked_context,
        "kv_cache_config": {
            "max_tokens": cache.blocks * cache.block_size,
            "free_gpu_memory_fraction": KV_FRACTION,
            "tokens_per_block": cache.block_size,
            "enable_block_reuse": cache.reuse,
            "host_cache_size": int(place.kv_host_gib * GIB),
        },
        "scheduler_config": {"capacity_scheduler_policy": spec.scheduling_policy.upper()},
        "cuda_graph_config": {"max_batch_size": spec.max_batch_size, "enable_padding": True}
        if spec.writes
        else None,
        "gather_generation_logits": spec.judges,
    }
    if place.expert_parallel > 1:
        arguments["moe_expert_parallel_size"] = place.expert_parallel
    return arguments
