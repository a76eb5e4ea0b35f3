"""Checks of the Triton model repository: as rendered, and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.serving.repository.check import check_repository
from tts.serving.repository.model_configs import model_configs

from .findings import no_folder, not_checked


def rendering(inputs: Inputs) -> Iterator[Finding]:
    """Check that a model repository can be rendered; that of target openvino needs its engines."""
    deployment = inputs.deployment
    if deployment.target != "tensorrt":
        return
    try:
        model_configs(deployment, inputs=inputs)
    except CheckpointError as error:
        if (deployment.verifier_model.tokenizer_folder / "tokenizer.json").is_file():
            return  # the check of the tokenizers reports it
        yield not_checked(
            f"the model repository. {error.message.removesuffix('.')}",
            "verifier.labels",
            "prm_score reads the logits at these ids",
            error.hint or "",
        )


def on_disk(inputs: Inputs) -> Iterator[Finding]:
    """The repository that lies there. Target openvino has it rendered again at each start."""
    if inputs.deployment.target != "tensorrt":
        return
    folder = paths.repository_dir(inputs.deployment.name)
    if what := no_folder(folder):
        fix = f"Remove it, then run: tts render {inputs.deployment.argument}"
        yield Finding(what, str(folder), "it is what a server loads", fix)
        return
    if not folder.is_dir():
        yield not_checked(
            "there is no model repository yet",
            str(folder),
            "it is what a server loads",
            f"Run: tts render {inputs.deployment.name}",
        )
        return
    with suppress(CheckpointError):  # the check of the rendering reports it
        for finding in check_repository(folder, inputs.deployment):
            yield replace(finding, where=f"{folder.name}/{finding.where}")
