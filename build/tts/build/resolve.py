"""From the models that a deployment names to the folders that everything else reads.

A name on the Hugging Face hub becomes the folder of its tokenizer. The first time that fetches
files: so it is a step of its own, which `load_deployment` leaves to the commands that need the
models. Only small files are taken, and nothing in them is executed. A cached file is used without
asking the hub, so a resumed run finds its own tokenizer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tts.base.errors import CheckpointError
from tts.base.input_files import is_file
from tts.base.shown_text import Say

from .spec import Deployment, RemoteSpec, RoleSpec, StartedSpec, load_deployment

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)


def say_on_stderr(line: str) -> None:
    """Say what takes a while, beside whatever a command prints."""
    print(line, file=sys.stderr)  # noqa: T201


def open_deployment(name_or_file: str | Path, say: Say = say_on_stderr) -> Deployment:
    """A deployment with its models' folders; raises as `load_deployment` and `resolve_models`."""
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
            folder = tokenizer_folder(str(spec.tokenizer_folder), say)
            update[role] = spec.model_copy(update={"tokenizer": folder})
    return deployment.model_copy(update=update)


def tokenizer_folder(name: str, say: Say) -> Path:
    """The folder of a model's tokenizer; `say` gets a line before a download.

    Raises CheckpointError with a remedy if there is no network, or no repository of that name.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*FILES], local_files_only=True))
        if is_file(folder / FILES[0]):
            return folder
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        pass
    try:
        say(f"Fetching the tokenizer of {name} from the Hugging Face hub, once.")
        folder = Path(snapshot_download(name, allow_patterns=[*FILES], library_name="tts-toolkit"))
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"The hub's model {name} is gated.",
            hint="Accept its terms on its page, and set HF_TOKEN to a token of that account.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"There is no folder {name}, and no model {name} on the hub that may be read without a "
            "token, or with this one.",
            hint="Check the name. A private model needs HF_TOKEN.",
        ) from error
    except Exception as error:  # of whichever HTTP library this version of huggingface_hub has
        why = " ".join(str(error.__cause__ or error).split()).rstrip(".") or type(error).__name__
        raise CheckpointError(
            f"There is no folder {name}, the cache of the Hugging Face hub has no such tokenizer, "
            f"and it cannot be fetched: {why:.300}.",
            hint="Check the network, HF_HUB_OFFLINE and HF_ENDPOINT; or fetch it where there is a "
            f"network (hf download {name} --include 'token*' '*config.json' '*.jinja' --local-dir "
            "FOLDER), bring the folder here, and name it in `tokenizer`.",
        ) from error
    if not is_file(folder / FILES[0]):
        raise CheckpointError(
            f"The hub's model {name} has no tokenizer.json.",
            hint="Save its fast tokenizer with transformers, and name that folder.",
        )
    return folder
