"""Checks of the Triton model repository: as rendered, and on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tts.build import paths
from tts.build.errors import CheckpointError, ServerError
from tts.build.inputs import Inputs
from tts.serving.contract import Finding, check_repository
from tts.serving.repository.render import render_models, template_values

from .findings import no_folder, not_checked, refused


def rendering(inputs: Inputs) -> Iterator[Finding]:
    """Check that a model repository can be rendered, and read as Triton reads it."""
    if not inputs.deployment.engines():
        return
    fix = "This is a fault of the toolkit's templates: report it with the deployment file."
    try:
        values = template_values(inputs.deployment, iteration_log=False, inputs=inputs)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model_repository"
            render_models(inputs.deployment, values, folder)
    except CheckpointError as error:
        if inputs.deployment.target == "openvino":
            return  # of the shapes, for the threads: the check of the checkpoints reports it
        if (inputs.deployment.verifier_model.tokenizer_folder / "tokenizer.json").is_file():
            return  # the check of the tokenizers reports it
        yield not_checked(
            f"the model repository. {error.message.removesuffix('.')}",
            "verifier.labels",
            "prm_score reads the logits at these ids",
            error.hint or "",
        )
    except ServerError as error:
        yield refused(error, inputs.deployment, "as rendered", "Triton does not load it", fix)


def on_disk(inputs: Inputs) -> Iterator[Finding]:
    """The repository that lies there. Target openvino has it rendered again at each start."""
    if inputs.deployment.tensorrt is None:
        return
    folder = paths.repository_dir(inputs.deployment.name)
    if what := no_folder(folder):
        fix = f"Remove it, then run: tts render {inputs.deployment.named}"
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
