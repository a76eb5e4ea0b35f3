"""Checks of both engines: checkpoints, what is built of them and how, memory, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from tts.build import paths
from tts.build.build_plan import check_length
from tts.build.checkpoint import open_checkpoint
from tts.build.errors import BuildError, CheckpointError, ConfigError, TtsError
from tts.build.manifest import inspect_engine
from tts.build.model_config import ModelConfig, read_model_config
from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.targets import target_module
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import (
    calibration_folder,
    check_engine,
    expected_engine,
    is_calibrated,
    steps,
)
from tts.build.tensorrt.engine_files import engine_problems
from tts.build.tensorrt.known_models import known_model
from tts.build.tensorrt.memory_plan import check_pools
from tts.build.tensorrt.model_shape import read_model
from tts.build.tensorrt.target import check_calibration, workspace
from tts.build.weights import Weights
from tts.serving.contract import Finding

from .findings import not_checked, refused
from .flags import flag_problems

_WEIGHTS = {".safetensors", ".bin"}


def checkpoints(deployment: Deployment) -> Iterator[Finding]:
    """Whether each checkpoint is there, whole and of a kind that can be built."""
    why = "the engine is made from it"
    for role, spec in deployment.engines().items():
        where = f"{role}.checkpoint"
        if not _is_here(spec):
            published = _is_published(deployment, spec)
            yield not_checked(
                f"{spec.checkpoint} has no config.json"
                + ("; its shape is the published one" if published else ""),
                where,
                "the engine is made from its weights"
                if published
                else "nothing of this engine can be known without it",
                "Download the checkpoint to that folder.",
            )
            continue
        try:
            model = _read(deployment, spec)
            if not any(file.suffix in _WEIGHTS for file in spec.checkpoint.iterdir()):
                yield not_checked(
                    f"{spec.checkpoint} has no weights", where, why, "Download the rest of it."
                )
            elif model.experts:
                Weights(spec.checkpoint)
            else:
                open_checkpoint(spec.checkpoint)
        except CheckpointError as error:
            yield refused(error, deployment, where, why, "Download or save the checkpoint again.")


def lengths(deployment: Deployment) -> Iterator[Finding]:
    """max_seq_len within the model's positions."""
    why = "beyond its last position a model was never trained; its answers there are noise"
    for role, model in _models(deployment):
        try:
            check_length(deployment, role, model.max_position_embeddings)
        except ConfigError as error:
            yield refused(error, deployment, f"{role}.max_seq_len", why)


def buildable(deployment: Deployment) -> Iterator[Finding]:
    """GPU, precision, parallelism and architecture, as TensorRT-LLM takes them."""
    why = "TensorRT-LLM refuses it, or changes it silently, after the conversion"
    if deployment.target == "tensorrt":
        for role, model in _models(deployment):
            try:
                check_engine(deployment, role, model)
            except ConfigError as error:
                yield refused(error, deployment, role, why)


def calibration(deployment: Deployment) -> Iterator[Finding]:
    """A local calibration folder: there, and without code."""
    for role, spec in deployment.engines().items():
        if not is_calibrated(spec) or (folder := calibration_folder(spec)) is None:
            continue
        where = f"{role}.tensorrt.calibration.dataset"
        if not folder.is_dir():
            yield not_checked(
                f"there is no folder {folder} here",
                where,
                f"{spec.precision} takes its scales from it",
                "Put the samples there before the build, on the machine that builds.",
            )
            continue
        try:
            check_calibration(spec)
        except TtsError as error:
            yield refused(error, deployment, where, "the quantiser opens the whole folder")


def flags(deployment: Deployment) -> Iterator[Finding]:
    """The planned trtllm-build commands: every flag exists, and says what the deployment says."""
    if deployment.target == "tensorrt" and not any(buildable(deployment)):
        for role, model in _models(deployment):
            work = workspace(deployment, role)
            command = steps(deployment, role, model, work)[-1].command
            yield from command_findings(deployment, role, model, command)


def command_findings(
    deployment: Deployment, role: Role, model: ModelConfig, command: Sequence[str]
) -> Iterator[Finding]:
    """What is wrong with the command that compiles one engine."""
    where = f"{role}: {command[0]}"
    fix = "This is a fault of the toolkit: report it with the deployment file."
    problems = contract.check_build_arguments(command[1:])
    for problem in problems:
        yield Finding(problem, where, "the build would stop, or build something else", fix)
    if not problems:
        spec, work = deployment.engines()[role], workspace(deployment, role)
        for what, why in flag_problems(role, spec, model, work, command[1:]):
            yield Finding(what, where, why, fix)


def memory(deployment: Deployment) -> Iterator[Finding]:
    """Both engines and their KV pools within the memory of each GPU."""
    known = len(list(_models(deployment))) == len(deployment.engines())
    if deployment.target == "tensorrt" and known and not any(buildable(deployment)):
        why = "the server would fail to load, or shrink the longest sequence and only log it"
        try:
            check_pools(deployment)
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


def read_back(deployment: Deployment) -> Iterator[Finding]:
    """config.json of the built engines against the deployment."""
    for role, model in _models(deployment):
        folder = paths.engine_dir(deployment.name, role)
        if not (folder / "config.json").is_file():
            yield not_checked(
                "the engine is not built on this machine",
                str(folder),
                "the builder changes some settings with a warning only",
                f"Run: tts build-engines {deployment.name}",
            )
        elif deployment.target == "tensorrt":
            expected = expected_engine(role, deployment.engines()[role], model)
            why = "the server would be told one thing by the engine and another by config.pbtxt"
            fix = f"Build it again: tts build-engines {deployment.name}"
            where = f"{folder}/config.json"
            try:
                for problem in engine_problems(folder, expected):
                    yield Finding(problem, where, why, fix)
            except BuildError as error:
                yield Finding(error.message.removesuffix("."), where, why, fix)


def current(deployment: Deployment) -> Iterator[Finding]:
    """Built engines against what a build would make now, by their manifests."""
    differing = {finding.where for finding in read_back(deployment)}
    target = target_module(deployment.target)
    for role, _ in _models(deployment):
        folder = paths.engine_dir(deployment.name, role)
        if differing & {str(folder), f"{folder}/config.json"}:
            continue  # said already
        try:
            checkpoint = deployment.engines()[role].checkpoint
            settings = target.settings_for(deployment, role)
            reasons = inspect_engine(folder, checkpoint, settings).reasons
        except CheckpointError as error:
            yield not_checked(
                f"whether the engine is of this checkpoint: {error.message.removesuffix('.')}",
                str(folder),
                "an engine of another checkpoint answers as well",
                "Download the checkpoint.",
            )
            continue
        for reason in reasons:
            yield Finding(
                reason,
                str(folder),
                "what is served would not be what the deployment says",
                f"Run: tts build-engines {deployment.name}",
            )


def _models(deployment: Deployment) -> Iterator[tuple[Role, ModelConfig]]:
    """The shapes that are known; what is wrong with the others `checkpoints` says."""
    for role, spec in deployment.engines().items():
        if _is_here(spec) or _is_published(deployment, spec):
            with suppress(CheckpointError):
                yield role, _read(deployment, spec)


def _read(deployment: Deployment, spec: EngineSpec) -> ModelConfig:
    tensorrt = deployment.target == "tensorrt"
    return read_model(spec.checkpoint) if tensorrt else read_model_config(spec.checkpoint)


def _is_here(spec: EngineSpec) -> bool:
    return (spec.checkpoint / "config.json").is_file()


def _is_published(deployment: Deployment, spec: EngineSpec) -> bool:
    return deployment.target == "tensorrt" and known_model(spec.checkpoint) is not None
