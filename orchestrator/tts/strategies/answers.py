"""The form that a strategy's parameters give its answers: read, and checked on a deployment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, read_text, require_path
from tts.build.spec import Deployment
from tts.constraints import answer_constraint
from tts.search import SearchConfig

MAX_SCHEMA_BYTES = 1_000_000


def with_schema_text(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Parameters whose `answer_schema`, given as a file, an object or JSON text, is JSON text.

    A relative path starts in `folder`, or where the program runs. Raises ConfigError.
    """
    schema = values.get("answer_schema")
    if isinstance(schema, Mapping):
        schema = json.dumps(schema)
    elif isinstance(schema, str | Path) and not str(schema).lstrip().startswith("{"):
        schema = _read((folder or Path()) / Path(schema).expanduser())
    return {**values, "answer_schema": schema} if "answer_schema" in values else {**values}


def require_answer_form(config: SearchConfig, deployment: Deployment) -> None:
    """Raise ConfigError for a form of answers that is wrong, or that the generator cannot keep."""
    delimiter = deployment.generator.step_delimiter
    constraint = answer_constraint(config.answer_regex, config.answer_schema, delimiter)
    if constraint and not deployment.generator.guided_decoding:
        llmapi = deployment.target == "llmapi"
        raise ConfigError(
            "The answer is given a form (answer_regex or answer_schema), but the generator of "
            f"deployment {deployment.name} is served without guided decoding.",
            hint="Target llmapi cannot: serve the pair with target tensorrt."
            if llmapi
            else "Set generator.guided_decoding: true in the deployment.",
        )


def _read(file: Path) -> str:
    try:
        require_path(str(file))
        return read_text(file, MAX_SCHEMA_BYTES)
    except (OSError, Unreadable) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            f"The schema of the answer, {str(file)!r:.200}, cannot be read: {reason}.",
            hint="Give answer_schema the path of a JSON file, or the schema itself.",
        ) from error
