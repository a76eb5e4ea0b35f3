"""From the models that a deployment names to the folders that everything else reads.

A GGUF file becomes a checkpoint folder, a name on the Hugging Face hub the folder of its tokenizer.
The first time that takes a while, and writes or fetches files: so it is a step of its own, which
`load_deployment` leaves to the commands that need the models.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .gguf import SUFFIX
from .shown_text import Say
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

    Raises CheckpointError for a GGUF file or a tokenizer that cannot be had, BuildError where a
    folder cannot be written.
    """
    update: dict[str, RoleSpec] = {}
    for role, engine in deployment.engines().items():
        folder = _folder(engine.checkpoint, say)
        update[role] = engine.model_copy(update={"checkpoint": folder})
    _share(deployment, update)
    for role, spec in deployment.roles().items():
        if not isinstance(spec, RemoteSpec | StartedSpec):
            continue
        folder = spec.tokenizer_folder
        if folder.is_absolute():
            folder = _folder(folder, say)
        else:
            from .hub_tokenizer import tokenizer_folder

            folder = tokenizer_folder(str(folder), say)
        update[role] = spec.model_copy(update={"tokenizer": folder})
    return deployment.model_copy(update=update)


def with_made_folders(deployment: Deployment) -> Deployment:
    """The deployment with the folders that were made of its GGUF files before; makes none."""
    from .gguf.folder import made_folder

    update: dict[str, RoleSpec] = {}
    for role, engine in deployment.engines().items():
        folder = made_folder(engine.checkpoint)
        update[role] = engine.model_copy(update={"checkpoint": folder})
    _share(deployment, update)
    return deployment.model_copy(update=update)


def _share(deployment: Deployment, update: dict[str, RoleSpec]) -> None:
    """Give a verifier that is the generator's engine the generator's folder."""
    if deployment.shares_engine:
        folder = {"checkpoint": update["generator"].tokenizer_folder}
        update["verifier"] = deployment.verifier_model.model_copy(update=folder)


def _folder(path: Path, say: Say) -> Path:
    if path.suffix.lower() != SUFFIX:
        return path
    from .gguf.folder import checkpoint_folder

    return checkpoint_folder(path, say)
