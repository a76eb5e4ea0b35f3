"""Checks of both checkpoints: that they are there, whole, and long enough for max_seq_len."""

from __future__ import annotations

from collections.abc import Iterator

from tts.base.errors import CheckpointError, ConfigError
from tts.base.findings import Finding
from tts.build.build_plan import check_length
from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.checkpoint_files import how_to_get, refuse_gguf
from tts.build.inputs import Inputs

from .findings import no_file, no_folder, not_checked, refused

_NAMES = (*CHECKPOINT_FILES, "chat_template.jinja")
_WEIGHTS = {".safetensors", ".bin"}


def checkpoints(inputs: Inputs) -> Iterator[Finding]:
    """Whether each checkpoint is there, whole and of a kind that can be built."""
    why = "the engine is made from it"
    for role, engine in inputs.engines.items():
        spec, where = engine.spec, f"{role}.checkpoint"
        if not engine.is_here:
            published = engine.is_published
            yield not_checked(
                f"{spec.checkpoint} has no config.json"
                + ("; its shape is the published one" if published else ""),
                where,
                "the engine is made from its weights"
                if published
                else "nothing of this engine can be known without it",
                how_to_get(spec.checkpoint),
            )
            continue
        try:
            _ = engine.shape
            if not any(file.suffix in _WEIGHTS for file in spec.checkpoint.iterdir()):
                yield not_checked(
                    f"{spec.checkpoint} has no weights", where, why, "Download the rest of it."
                )
            else:
                engine.require_weights()
        except CheckpointError as error:
            yield refused(
                error, inputs.deployment, where, why, "Download or save the checkpoint again."
            )


def lengths(inputs: Inputs) -> Iterator[Finding]:
    """max_seq_len within the model's positions."""
    why = "beyond its last position a model was never trained; its answers there are noise"
    for engine in inputs.with_shapes():
        try:
            check_length(engine)
        except ConfigError as error:
            yield refused(error, inputs.deployment, f"{engine.role}.max_seq_len", why)


def checkpoint_files(inputs: Inputs) -> Iterator[Finding]:
    """Each checkpoint is a folder, and its files are files."""
    for role, spec in inputs.deployment.engines().items():
        folder = spec.checkpoint
        why = "it would be taken for missing"
        fix = "Download or save the checkpoint again."
        try:
            refuse_gguf(folder)
        except CheckpointError as error:
            yield refused(error, inputs.deployment, f"{role}.checkpoint", why)
            continue
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
