"""The base of the sections of a deployment file, and the types they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tts.base.input_files import require_path

Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
"""What TensorRT-LLM and the wire hold as int32."""
Parallel = Annotated[int, Field(strict=True, ge=1, le=1024)]
"""A number of GPUs or CPU threads that one machine may have."""


def _path(value: object) -> object:
    if isinstance(value, str):
        require_path(value)
    return value


FilePath = Annotated[Path, BeforeValidator(_path)]
"""A path that a file can have."""


class Section(BaseModel):
    """A mapping of known fields, not changed once it is checked."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # an engine's process checks none
    )
