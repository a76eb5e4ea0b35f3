"""The two JSON files beside an engine: config.json describes it, manifest.json its origin.

An engine is current while nothing it was made from has changed; `inspect_engine` says what has.
In a TensorRT-LLM engine, config.json is TensorRT-LLM's own.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from tts.base.choices import Precision, Role, Target
from tts.base.errors import BuildError
from tts.base.input_files import is_file
from tts.base.user_paths import is_marked, mark

from .checkpoint import FileStamp, content_hash, file_sha256, stamp_files

CONFIG_FILE = "config.json"
MANIFEST_FILE = "manifest.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")

BuildSettings = dict[str, JsonValue]
"""The settings that an engine is built with, besides the checkpoint. Any change rebuilds it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineConfig(_Record):
    """What clients and the engine host need to know of an engine (`config.json` in its folder)."""

    schema_version: Literal[1] = 1
    target: Target
    role: Role
    architecture: str
    vocab_size: int
    """The rows of the embedding; every input id is below it."""
    output_vocab_size: int
    """Columns of the logits: the vocabulary, or the labels of a verifier that does not write."""
    label_token_ids: tuple[int, ...] | None
    """The tokens that scores are read at, the best first, in the order of the logits' columns where
    these are the labels alone; 0 and 1 for columns that stand for no tokens, such as a head's
    classes; null where no score is read."""
    label_weights: tuple[float, ...] | None = None
    """How much the probability of each of these counts in a score; null without them."""
    eos_token_ids: tuple[int, ...]
    precision: Precision
    max_position_embeddings: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


class Verification(_Record):
    """How far an engine's logits are from those of transformers (absolute errors)."""

    export_error: float
    """The exported graph in fp32 arithmetic, with the weights as the engine stores them."""
    served_error: float
    """The engine in the arithmetic that it is served with, against the checkpoint itself."""
    largest_logit: float
    """The largest logit that they were measured beside."""
    rounding_error: float
    """How far fp32 arithmetic alone takes transformers from fp64."""


class Manifest(_Record):
    """The origin of an engine, and how well it agrees with transformers."""

    schema_version: Literal[1] = 1
    created: str
    """UTC, ISO 8601."""
    checkpoint: str
    checkpoint_sha256: str
    checkpoint_files: tuple[FileStamp, ...]
    settings: BuildSettings
    engine_files: dict[str, int]
    """Sizes in bytes of the files that make up the engine."""
    engine_sha256: dict[str, str]
    """Hashes of the same files."""
    verification: Verification | None
    not_verified: str | None
    """Why there is no verification; null when there is one."""


class EngineState(NamedTuple):
    """An engine folder as found: its manifest, its checkpoint's files, and why it is stale."""

    manifest: Manifest | None
    stamps: tuple[FileStamp, ...]
    reasons: tuple[str, ...]
    """Empty when the engine is up to date."""


def new_manifest(
    folder: Path,
    checkpoint: Path,
    stamps: Sequence[FileStamp],
    settings: BuildSettings,
    verification: Verification | None,
    not_verified: str | None,
) -> Manifest:
    """The manifest of the engine that has just been written to `folder`; raises OSError."""
    files = sorted(folder.iterdir())
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        checkpoint=str(checkpoint),
        checkpoint_sha256=content_hash(stamps),
        checkpoint_files=tuple(stamps),
        settings=settings,
        engine_files={file.name: file.stat().st_size for file in files},
        engine_sha256={file.name: file_sha256(file) for file in files if file.is_file()},
        verification=verification,
        not_verified=not_verified,
    )


def inspect_engine(folder: Path, checkpoint: Path, settings: BuildSettings) -> EngineState:
    """Whether an engine folder is up to date, and if not, why; raises CheckpointError."""
    manifest = read_manifest(folder)
    stamps_before: tuple[FileStamp, ...] = ()
    if manifest is not None and manifest.checkpoint == str(checkpoint):
        stamps_before = manifest.checkpoint_files  # another folder's files may look alike
    stamps = tuple(stamp_files(checkpoint, stamps_before))
    reasons = _stale_reasons(folder, manifest, settings, stamps)
    return EngineState(manifest, stamps, tuple(reasons))


def _stale_reasons(
    folder: Path, manifest: Manifest | None, settings: BuildSettings, stamps: Sequence[FileStamp]
) -> list[str]:
    if manifest is None:
        return ["its manifest is missing" if folder.exists() else "it has not been built"]
    reasons = []
    for name, size in manifest.engine_files.items():
        file = folder / name
        if not is_file(file):
            reasons.append(f"{name} is missing")
        elif file.stat().st_size != size:
            reasons.append(f"{name} has changed since it was built")
    for name in settings | manifest.settings:
        before, now = manifest.settings.get(name), settings.get(name)
        if before != now:
            reasons.append(f"{name} was {_text(before)} and is now {_text(now)}")
    if manifest.checkpoint_sha256 != content_hash(stamps):
        old = {stamp.name: stamp.sha256 for stamp in manifest.checkpoint_files}
        new = {stamp.name: stamp.sha256 for stamp in stamps}
        changed = sorted(name for name in old | new if old.get(name) != new.get(name))
        reasons.append(f"its checkpoint has changed since ({', '.join(changed)})")
    return reasons


def changed_content(folder: Path, manifest: Manifest, *, anew: bool = True) -> list[str]:
    """Files of an engine whose bytes are not those that were built; reads all of them.

    Unless `anew`, only once for each build, copy and boot of this machine. Only files that are
    there: what is missing is a reason for `inspect_engine`. Raises OSError.
    """
    hashes = {n: sha for n, sha in manifest.engine_sha256.items() if is_file(folder / n)}
    state = _state(folder, hashes)
    if not anew and is_marked("engines", str(folder.resolve()), state):
        return []
    changed = [name for name, sha256 in hashes.items() if file_sha256(folder / name) != sha256]
    if not changed:
        mark("engines", str(folder.resolve()), state)
    return changed


def _state(folder: Path, hashes: dict[str, str]) -> str:
    """What tells files that have been read since the machine started from all others."""
    lines = [_BOOT.read_text() if _BOOT.exists() else ""]
    for name, sha256 in hashes.items():
        status = (folder / name).stat()
        times = status.st_mtime_ns, status.st_ctime_ns
        lines.append(f"{name} {sha256} {status.st_dev} {status.st_ino} {status.st_size} {times}")
    return "\n".join(lines)


def write_record(folder: Path, name: str, record: EngineConfig | Manifest) -> None:
    """Write a record as `name` in `folder`, atomically; raises OSError."""
    temporary = folder / f".{name}.new"
    temporary.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    temporary.replace(folder / name)


def is_only_described(folder: Path) -> bool:
    """Whether an engine folder holds its manifest alone, as where only clients of a server run."""
    try:
        return [file.name for file in folder.iterdir()] == [MANIFEST_FILE]
    except OSError:
        return False


def read_engine_config(folder: Path) -> EngineConfig:
    """config.json of an engine folder; raises BuildError saying how to build it again."""
    file = folder / CONFIG_FILE
    try:
        return EngineConfig.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise BuildError(
            f"{file} is not the description of an engine: {error}",
            hint="Build the engine again: tts build-engines NAME --force.",
        ) from error


def read_manifest(folder: Path) -> Manifest | None:
    """manifest.json of an engine folder; None when it is missing, damaged or of another version."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _text(value: object) -> str:
    return ", ".join(map(repr, value)) if isinstance(value, (tuple, list)) else str(value)
