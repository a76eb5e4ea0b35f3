"""Reading the JSON files of a checkpoint, with errors a user can act on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tts.base.errors import CheckpointError
from tts.base.input_files import Unreadable, parse_json, read_text
from tts.base.user_paths import is_folder

_FETCHED_BY = {"smollm2-135m-instruct": "scripts/fetch_smollm2"}
"""Commands that fetch the checkpoints of bundled deployments without an account, by folder."""


def read_json_object(file: Path) -> dict[str, Any]:
    """The JSON object in a checkpoint's file; raises CheckpointError naming the file."""
    try:
        data = parse_json(read_text(file))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{file.parent} has no {file.name}.",
            hint="The checkpoint is incomplete: download or save it again.",
        ) from error
    except Unreadable as error:
        raise CheckpointError(
            f"{file} cannot be read: {error}",
            hint="The file is damaged: download or save the checkpoint again.",
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file} must hold a JSON object.")
    return data


def refuse_gguf(path: Path) -> None:
    """Raise CheckpointError for a GGUF file in the place of a folder."""
    if path.suffix.lower() == ".gguf":
        raise CheckpointError(
            f"{path} is a GGUF file, and a Hugging Face checkpoint folder is needed here.",
            hint="llama.cpp reads GGUF files: set target to llama.cpp, or give the url of a "
            "llama-server that runs, and as its tokenizer the folder or OWNER/NAME of the model.",
        )


def require_checkpoint_folder(checkpoint: Path) -> None:
    """Raises CheckpointError when there is no such folder, or it cannot be read."""
    refuse_gguf(checkpoint)
    if not is_folder(checkpoint):
        raise CheckpointError(
            f"There is no checkpoint folder {checkpoint}.", hint=how_to_get(checkpoint)
        )
    if not os.access(checkpoint, os.R_OK | os.X_OK):
        raise CheckpointError(f"There is no permission to read the checkpoint {checkpoint}.")


def how_to_get(checkpoint: Path) -> str:
    """A hint for a missing checkpoint."""
    if script := _FETCHED_BY.get(checkpoint.name):
        return f"Fetch it, from the repository's folder: {script}"
    return "Set `checkpoint` in the deployment file to a Hugging Face checkpoint folder."
