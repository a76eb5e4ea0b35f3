"""Checks of the Triton model repository: as it would be rendered, and as it lies on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tts.build import paths
from tts.build.errors import CheckpointError, ServerError
from tts.build.spec import Deployment
from tts.serving.contract import Finding, check_repository, check_values
from tts.serving.repository.render import render_models, template_values

from .file_kinds import no_folder
from .findings import not_checked, refused


def rendering(deployment: Deployment) -> Iterator[Finding]:
    """What `tts deploy` would render can be read, and its values are such as servers take."""
    fix = "This is a fault of the toolkit's templates: report it with the deployment file."
    try:
        values = template_values(deployment, iteration_log=False)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model_repository"
            render_models(deployment, values, folder)
            if deployment.target != "openvino":
                for finding in check_values(folder, fix):
                    yield replace(finding, where=f"as rendered: {finding.where}")
    except CheckpointError as error:
        if (deployment.verifier.checkpoint / "tokenizer.json").is_file():
            return  # the check of the tokenizers reports it
        yield not_checked(
            f"the model repository. {error.message.removesuffix('.')}",
            "verifier.labels",
            "prm_score reads the logits at these ids",
            error.hint or "",
        )
    except ServerError as error:
        yield refused(error, deployment, "as rendered", "Triton does not load it", fix)


def on_disk(deployment: Deployment) -> Iterator[Finding]:
    """The repository that lies there. Target openvino has it rendered again at each start."""
    if deployment.target == "openvino":
        return
    folder = paths.repository_dir(deployment.name)
    if what := no_folder(folder):
        fix = f"Remove it, then run: tts deploy {deployment.named}"
        yield Finding(what, str(folder), "it is what a server loads", fix)
        return
    if not folder.is_dir():
        yield not_checked(
            "there is no model repository yet",
            str(folder),
            "it is what a server loads",
            f"Run: tts deploy {deployment.name}",
        )
        return
    with suppress(CheckpointError):  # the check of the rendering reports it
        for finding in check_repository(folder, deployment):
            yield replace(finding, where=f"{folder.name}/{finding.where}")
