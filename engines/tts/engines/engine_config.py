"""What the builder says about a compiled engine: `<engine_dir>/config.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tts.build.errors import EngineError
from tts.build.spec import Precision, Role


class EngineConfig(BaseModel):
    """The part of an engine's config.json that running it needs."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    target: str
    role: Role
    vocab_size: int
    """Rows of the embedding: which prompt ids are valid."""
    label_token_ids: tuple[int, ...] | None = None
    """Token ids of a verifier's output rows, in order; None for a generator."""
    precision: Precision
    max_position_embeddings: int


def read_engine_config(engine_dir: Path) -> EngineConfig:
    """Read an engine's config.json; raises EngineError if it is missing or not for this target."""
    file = engine_dir / "config.json"
    try:
        config = EngineConfig.model_validate_json(file.read_bytes())
    except OSError as error:
        raise EngineError(
            f"{file} cannot be read: {error.strerror}.", hint="Build the engine first: tts build"
        ) from error
    except ValidationError as error:
        raise EngineError(f"{file} is not an engine's configuration: {error}") from error
    if config.target != "openvino":
        raise EngineError(f"{engine_dir} was built for target {config.target}, not for openvino.")
    return config
