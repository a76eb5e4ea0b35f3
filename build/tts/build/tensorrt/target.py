"""Target tensorrt: engines for NVIDIA GPUs, made by TensorRT-LLM in NVIDIA's container."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tts.base import paths
from tts.base.errors import BuildError
from tts.base.shown_text import Say

from ..build_plan import BuildPlan, VerificationOutcome, check_length, describe_engine, new_plan
from ..checkpoint import FileStamp, content_hash, write_causal
from ..inputs import EngineInputs, judged_by
from ..manifest import BuildSettings, EngineConfig
from ..model_config import known_model
from ..spec import Deployment, Role, VerifierRole
from ..verifiers.dialogue import label_ids
from . import contract
from .commands import (
    RECIPE_VERSION,
    BuildStep,
    Workspace,
    activation_dtype,
    build_values,
    check_calibration,
    check_engine,
    expected_engine,
    is_calibrated,
    quantisation,
    steps,
)
from .engine_files import require_as_asked
from .engine_memory import parameters
from .toolchain import find_toolchain, require_machine, run_step, shell_text

_RECORD = "checkpoint.json"
_STORED_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4_awq": 0.5}


def settings_for(inputs: EngineInputs) -> BuildSettings:
    """What the engine would be built with now, without settings of the server."""
    role, spec, model = inputs.role, inputs.spec, inputs.shape
    options = inputs.deployment.tensorrt_block
    container, place = contract.containers()[options.container], spec.placement
    settings: BuildSettings = {
        "target": inputs.deployment.target,
        "role": role,
        "precision": spec.precision,
        "recipe_version": RECIPE_VERSION,
        "tensorrt_llm": container.tensorrt_llm,
        "tensorrt": container.tensorrt,
        "gpu": options.gpu,
        "dtype": activation_dtype(spec, model),
        "kv_cache_quant_algo": quantisation(spec)[1],
        "tensor_parallel": place.tensor_parallel,
        "pipeline_parallel": place.pipeline_parallel,
        "expert_parallel": place.expert_parallel,
    }
    if model.head:
        settings["head"] = model.head.kind
    if is_calibrated(spec):
        settings["calibration"] = place.calibration.model_dump(mode="json")
    flags = build_values(spec, model)
    return settings | {flag.removeprefix("--"): value or "enable" for flag, value in flags.items()}


def plan_engine(inputs: EngineInputs) -> BuildPlan:
    """Check everything that can be known without a GPU; raises CheckpointError, ConfigError."""
    check_engine(inputs.deployment, inputs.role, inputs.shape)
    check_length(inputs)
    inputs.require_weights()
    check_calibration(inputs.spec)
    return new_plan(inputs, settings_for(inputs), _padded_vocabulary(inputs))


def engine_config(inputs: EngineInputs, folder: Path) -> EngineConfig:
    """What clients and templates need of an engine; config.json in `folder` is NVIDIA's."""
    return describe_engine(inputs, _padded_vocabulary(inputs))


def prepare(plans: Sequence[BuildPlan], verify: bool | None) -> None:
    """Before the first engine is built, refuse whatever would stop any of them."""
    if verify:
        raise BuildError(
            "Engines of target tensorrt are not compared with transformers: what is checked is "
            "that each is what was asked for.",
            hint="Leave --verify out.",
        )
    deployment = plans[0].deployment
    options = deployment.tensorrt_block
    devices = (d for plan in plans for d in plan.spec.placement.replicas[0])
    require_machine(find_toolchain(options.container), options.gpu, devices)
    root = paths.built_dir(deployment.name)
    for plan in plans:
        model = plan.inputs.shape
        stored = parameters(model).total * _STORED_BYTES[plan.spec.precision]
        needed = (2 + (model.head is not None)) * stored  # written again, converted, and compiled
        free = shutil.disk_usage(root).free
        if free < needed:
            raise BuildError(
                f"The {plan.role} engine needs about {needed / 1e9:.1f} GB in {root} while it is "
                f"built, which has {free / 1e9:.1f} GB free.",
                hint="Free some space, or set TTS_HOME to a folder on a larger disk.",
            )


def make_engine(
    plan: BuildPlan, stamps: Sequence[FileStamp], folder: Path, verify: bool | None, say: Say
) -> VerificationOutcome:
    """Build the engine in `folder`; after a failure, a finished conversion is kept for the next."""
    model = plan.inputs.shape
    toolchain = find_toolchain(plan.deployment.tensorrt_block.container)
    work = workspace(plan.deployment, plan.role)
    check, conversion, compilation = steps(plan.deployment, plan.role, model, work)
    made_from = {
        "checkpoint_sha256": content_hash(stamps),
        "command_sha256": hashlib.sha256("\0".join(conversion.command).encode()).hexdigest(),
        "recipe_version": RECIPE_VERSION,
        "tensorrt_llm": contract.TENSORRT_LLM,
    }
    log = work.root.with_name(f"{plan.role}-build.log")
    log.unlink(missing_ok=True)
    converted = _record(work) == made_from

    isolated = True

    def run(step: BuildStep) -> None:
        nonlocal isolated
        say(f"{plan.role}: {_DOING[step.name]} (log: {log})")
        what = f"{plan.role}: building the engine"
        ran = run_step(
            toolchain, replace(step, isolated=isolated), work, log=log, say=say, what=what
        )
        isolated = ran.isolated

    try:
        for directory in (work.home, work.timing_cache.parent):
            directory.mkdir(parents=True, exist_ok=True)
        run(check)
        if converted:
            say(f"{plan.role}: the checkpoint was converted by an earlier try")
        else:
            (work.root / _RECORD).unlink(missing_ok=True)
            _empty(work.checkpoint)
            if model.head:
                say(f"{plan.role}: writing the checkpoint again, as a causal model")
                write_causal(plan.inputs.checkpoint, work.causal)
            run(conversion)
            shutil.rmtree(work.causal, ignore_errors=True)
            ranks = range(plan.spec.placement.ranks)
            names = ["config.json", *(f"rank{rank}.safetensors" for rank in ranks)]
            if missing := [name for name in names if not (work.checkpoint / name).is_file()]:
                raise BuildError(
                    f"The conversion ended well, but did not write {', '.join(missing)}."
                )
            record = json.dumps(made_from, indent=1) + "\n"
            (work.root / _RECORD).write_text(record, encoding="utf-8")
            converted = True
        _empty(work.engine)
        run(compilation)
        require_as_asked(work.engine, expected_engine(plan.spec, model))
        for file in work.engine.iterdir():
            file.rename(folder / file.name)
        if work.new_timings.is_file():
            work.new_timings.replace(work.timing_cache)
    except BaseException:
        shutil.rmtree(work.engine if converted else work.root, ignore_errors=True)
        raise
    shutil.rmtree(work.root)
    return VerificationOutcome(
        None, "TensorRT-LLM engines are read back, not compared with transformers"
    )


def preview(inputs: EngineInputs) -> list[str]:
    """The commands that build one engine; needs no GPU, no docker, no checkpoint."""
    deployment, role, spec, model = inputs.deployment, inputs.role, inputs.spec, inputs.shape
    options = deployment.tensorrt_block
    check_length(inputs)
    work = workspace(deployment, role)
    toolchain = find_toolchain(options.container)
    lines = [f"# {role}: {spec.checkpoint.name} in {spec.precision} for {options.gpu}"]
    if not (spec.checkpoint / "config.json").is_file():
        lines.append(f"# not at {spec.checkpoint} yet; its shape is the published one")
    if inputs.judge:
        judge = inputs.judge.verifier
        lines.append(f"# judges with {judged_by(model, judge)}")
        if model.head:
            lines.append(f"# its checkpoint, written again as a causal model: {work.causal}")
        elif judge.labels:
            lines.append(f"# label tokens: {_label_text(inputs, judge)}")
    lines.append(shell_text(["mkdir", "-p", str(work.home), str(work.timing_cache.parent)]))
    for step in steps(deployment, role, model, work):
        lines.append(f"# {_EXPLAINED[step.name]}")
        lines.append(shell_text(toolchain.command(step, work)))
    lines.append(f"# then: read back, and moved to {paths.engine_dir(deployment.name, role)}")
    return lines


_EXPLAINED = {
    "check": "versions and tools in the container, and the GPU's compute capability",
    "convert": "from the Hugging Face checkpoint to TensorRT-LLM's",
    "quantise": "calibrate, quantise and convert the Hugging Face checkpoint",
    "compile": "compile the engine",
}


_DOING = {
    "check": "checking the container, which docker downloads the first time (14 GB)",
    "convert": "converting the checkpoint",
    "quantise": "calibrating and quantising the checkpoint",
    "compile": "compiling the engine",
}


def workspace(deployment: Deployment, role: Role) -> Workspace:
    """Where the engine of a role is built; all builds for one GPU share kernel timings."""
    options = deployment.tensorrt_block
    tensorrt = contract.containers()[options.container].tensorrt
    return Workspace(
        root=paths.built_dir(deployment.name) / f".{role}.work",
        timing_cache=paths.built_dir(".timings") / f"{options.gpu}-tensorrt-{tensorrt}.cache",
    )


def _padded_vocabulary(inputs: EngineInputs) -> int:
    """Columns of an engine's logits, which its ranks hold in equal parts."""
    ranks = inputs.spec.placement.tensor_parallel
    return -(-inputs.shape.vocab_size // ranks) * ranks


def _label_text(inputs: EngineInputs, spec: VerifierRole) -> str:
    names = tuple(spec.labels)
    if (inputs.folder / "tokenizer.json").is_file():
        ids: Sequence[int] = label_ids(inputs.tokenizer, spec.labels)
        return ", ".join(f"{name!r} is {id_}" for name, id_ in zip(names, ids, strict=True))
    model = known_model(inputs.folder)
    published = (model and (model.label_token_ids or model.answer_token_ids)) or {}
    if any(name not in published for name in names):
        return f"{', '.join(map(repr, names))}, to be looked up in the tokenizer"
    return ", ".join(f"{name!r} is {published[name]}" for name in names) + " (published)"


def _record(work: Workspace) -> object:
    """The record of a finished conversion; None when there is none."""
    try:
        return json.loads((work.root / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
