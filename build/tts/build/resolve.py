"""From the models that a deployment names to the folders that everything else reads.

A name on the Hugging Face hub becomes the folder of its tokenizer. The first time that fetches
files: so it is a step of its own, which `load_deployment` leaves to the commands that need the
models.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tts.base.shown_text import Say

from .spec import Deployment, RemoteSpec, RoleSpec, StartedSpec, load_deployment


def say_on_stderr(line: str) -> None:
    """Say what takes a while, beside whatever a command prints."""
    print(line, file=sys.stderr)  # noqa: T201


def open_deployment(name_or_file: str | Path, say: Say = say_on_stderr) -> Deployment:
    """A deployment by its file or its bundled name, with the folders of its models.

    Raises what `load_deployment` and `resolve_models` raise.
    """
    return resolve_models(load_deployment(name_or_file), say)


def resolve_models(deployment: Deployment, say: Say = say_on_stderr) -> Deployment:
    """The deployment with the folders of its models; `say` gets a line before a long step.

    Raises CheckpointError for a tokenizer that cannot be had, BuildError where a folder cannot be
    written.
    """
    update: dict[str, RoleSpec] = {}
    for role, spec in deployment.roles().items():
        served = isinstance(spec, RemoteSpec | StartedSpec)
        if served and not spec.tokenizer_folder.is_absolute():
            from .hub_tokenizer import tokenizer_folder

            folder = tokenizer_folder(str(spec.tokenizer_folder), say)
            update[role] = spec.model_copy(update={"tokenizer": folder})
    return deployment.model_copy(update=update)
