"""The tokenizer of a model on the Hugging Face hub, by its name: from the local cache, or fetched.

Only the small files below are taken, and nothing in them is executed. A cached file is used without
asking the hub, so a resumed run finds its own tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tts.base.errors import CheckpointError
from tts.base.input_files import is_file

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def names_repository(text: str) -> bool:
    """Whether a text may be OWNER/NAME of the hub."""
    return _NAME.fullmatch(text) is not None


def tokenizer_folder(name: str, say: Callable[[str], None]) -> Path:
    """The folder of a model's tokenizer; `say` gets a line before a download.

    Raises CheckpointError with a remedy if there is no network, or no repository of that name.
    """
    from huggingface_hub import errors, snapshot_download

    patterns = list(FILES)
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        if is_file(folder / FILES[0]):
            return folder
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        pass
    try:
        say(f"Fetching the tokenizer of {name} from the Hugging Face hub, once.")
        folder = Path(snapshot_download(name, allow_patterns=patterns, library_name="tts-toolkit"))
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
