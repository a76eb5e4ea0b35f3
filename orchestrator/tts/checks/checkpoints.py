"""Checks of both checkpoints: that they are there, whole, and long enough for max_seq_len."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tts.build.build_plan import check_length
from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.checkpoint_files import how_to_get
from tts.build.engine_shape import engine_shape, open_engine_checkpoint
from tts.build.errors import CheckpointError, ConfigError
from tts.build.gguf.file import SUFFIX
from tts.build.llmapi import target as llmapi
from tts.build.model_config import ModelConfig, read_model_config
from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.tensorrt.model_shape import known_model, read_model
from tts.build.weights import Weights
from tts.serving.repository.check import Finding

from .findings import no_file, no_folder, not_checked, refused

_NAMES = (*CHECKPOINT_FILES, "chat_template.jinja")
_WEIGHTS = {".safetensors", ".bin"}


def checkpoints(deployment: Deployment) -> Iterator[Finding]:
    """Whether each checkpoint is there, whole and of a kind that can be built."""
    why = "the engine is made from it"
    for role, spec in deployment.engines().items():
        where = f"{role}.checkpoint"
        if not _is_here(spec):
            published = _is_published(deployment, spec)
            yield not_checked(
                (
                    f"there is no {spec.checkpoint}"
                    if spec.checkpoint.suffix == SUFFIX
                    else f"{spec.checkpoint} has no config.json"
                )
                + ("; its shape is the published one" if published else ""),
                where,
                "the engine is made from its weights"
                if published
                else "nothing of this engine can be known without it",
                how_to_get(spec.checkpoint),
            )
            continue
        try:
            model = _read(deployment, spec)
            if not any(file.suffix in _WEIGHTS for file in spec.checkpoint.iterdir()):
                yield not_checked(
                    f"{spec.checkpoint} has no weights", where, why, "Download the rest of it."
                )
            elif model.experts:
                Weights(spec.checkpoint).require_ends()
            else:
                open_engine_checkpoint(spec)
        except CheckpointError as error:
            yield refused(error, deployment, where, why, "Download or save the checkpoint again.")


def lengths(deployment: Deployment) -> Iterator[Finding]:
    """max_seq_len within the model's positions."""
    why = "beyond its last position a model was never trained; its answers there are noise"
    for role, model in models_of(deployment):
        try:
            check_length(deployment, role, model.max_position_embeddings)
        except ConfigError as error:
            yield refused(error, deployment, f"{role}.max_seq_len", why)


def models_of(deployment: Deployment) -> Iterator[tuple[Role, ModelConfig]]:
    """The models whose shape is known; `checkpoints` reports what is wrong with the others."""
    for role, spec in deployment.engines().items():
        if _is_here(spec) or _is_published(deployment, spec):
            with suppress(CheckpointError):
                yield role, _read(deployment, spec)


def _read(deployment: Deployment, spec: EngineSpec) -> ModelConfig:
    match deployment.target:
        case "openvino":
            model = read_model_config(spec.checkpoint)
        case "tensorrt":
            model = read_model(spec.checkpoint)
        case "llmapi":
            model = llmapi.read_model(spec.checkpoint)
        case "openai":
            raise AssertionError("it has no engines")
    return engine_shape(model, spec)


def _is_here(spec: EngineSpec) -> bool:
    return (spec.checkpoint / "config.json").is_file()


def _is_published(deployment: Deployment, spec: EngineSpec) -> bool:
    return deployment.target != "openvino" and known_model(spec.checkpoint) is not None


def checkpoint_files(deployment: Deployment) -> Iterator[Finding]:
    """Each checkpoint is a folder, and its files are files."""
    for role, spec in deployment.engines().items():
        folder = spec.checkpoint
        why = "it would be taken for missing"
        fix = "Download or save the checkpoint again."
        if what := no_folder(folder):
            yield Finding(
                f"{folder} {what}",
                f"{role}.checkpoint",
                "a checkpoint is a folder of files",
                f"Set {role}.checkpoint to the folder that holds its config.json.",
            )
            continue
        for file in (*(folder / name for name in _NAMES), *folder.glob("*.safetensors")):
            yield from no_file(file, why, fix)
