"""A GGUF file as the checkpoint folder that everything else reads, written once.

It lies where the toolkit keeps what it makes, found by the file's path. A file that has changed is
written again: it is known by its size and times, so that nothing of it is read where it has not.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import paths
from ..errors import BuildError, CheckpointError
from ..input_files import Unreadable, is_file, parse_json, read_text
from ..shown_text import Say
from ..staging import build_lock, disk_errors, staged
from ..weights import TYPES, WEIGHTS, Array, write_safetensors
from . import SUFFIX
from .file import GgufFile, library
from .model import GgufModel, read_model
from .tokenizer import tokenizer_config, tokenizer_json

SOURCE = "source.json"
"""Beside the checkpoint: which file it was made from, and by which version of this package."""
_RULES = 1
"""Raised where a folder becomes another than before."""


def checkpoint_folder(checkpoint: Path, say: Say) -> Path:
    """The folder of a checkpoint: itself, or what is made of a GGUF file.

    Takes about as long as copying it, the first time. Raises CheckpointError for a file without a
    supported model, and BuildError where the folder cannot be written.
    """
    folder = made_folder(checkpoint)
    if folder != checkpoint or not _is_gguf(checkpoint):
        return folder
    folder = _place(checkpoint)
    with disk_errors(folder.parent), build_lock(folder.parent, say):
        if (source := _source(checkpoint)) != _source_of(folder):  # which another has just written
            say(f"Reading {checkpoint} into {folder}, once.")
            model = read_model(GgufFile(checkpoint))
            with staged(folder) as new:
                _write(model, new)
                _write_json(new / SOURCE, source)
    return folder


def made_folder(checkpoint: Path) -> Path:
    """The folder that was made of a GGUF file as it is now; otherwise the path itself."""
    if not _is_gguf(checkpoint):
        return checkpoint
    folder = _place(checkpoint)
    return folder if _source_of(folder) == _source(checkpoint) else checkpoint


def _is_gguf(checkpoint: Path) -> bool:
    return checkpoint.suffix.lower() == SUFFIX and is_file(checkpoint)


def _place(checkpoint: Path) -> Path:
    place = hashlib.sha256(str(checkpoint).encode()).hexdigest()[:12]
    return paths.imported_dir() / place / checkpoint.stem


def _source(file: Path) -> dict[str, Any]:
    try:
        status = file.stat()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror or error}.") from error
    times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    return {"file": str(file), "size": status.st_size, **times, "rules": _RULES}


def _source_of(folder: Path) -> Any:
    try:
        return parse_json(read_text(folder / SOURCE))
    except (OSError, Unreadable):
        return None


def _write(model: GgufModel, folder: Path) -> None:
    name = _type_name(model)
    kind = TYPES[name]
    _require_space(model, kind, folder)
    fields = model.fields | {"torch_dtype": kind.name}
    _write_json(folder / "config.json", fields)
    _write_json(folder / "tokenizer.json", tokenizer_json(model.file))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(model.file))
    layout = {tensor: (name, model.shape(tensor)) for tensor in model.tensors}
    write_safetensors(folder / WEIGHTS, layout, _values(model, kind))


def _type_name(model: GgufModel) -> str:
    """How the weights are written: as the file's matrices are, and fp16 where they are quantised.

    fp16 keeps a quantised value to 1/4096 of itself, which is far less than quantising took.
    """
    kinds = library().GGMLQuantizationType
    stored = [model.file.tensors[there] for there in model.tensors.values()]
    names = {kinds(tensor.kind).name for tensor in stored if len(tensor.shape) > 1}
    if names <= {"BF16"}:
        return "BF16"
    return "F32" if names & {"F32", "BF16"} else "F16"


def _values(model: GgufModel, kind: np.dtype[Any]) -> Iterator[Array]:
    """The values of all tensors, some rows at a time."""
    for tensor in model.tensors:
        for values in model.values(tensor):
            with np.errstate(over="ignore"):  # looked at below
                written = values.astype(kind)
            if not np.isfinite(written).all():
                raise CheckpointError(
                    f"{model.file.path}: tensor {model.tensors[tensor]!r} holds values that "
                    f"are no numbers in {kind.name}.",
                    hint="The file is damaged: download it again.",
                )
            yield written


def _require_space(model: GgufModel, kind: np.dtype[Any], folder: Path) -> None:
    needed = sum(math.prod(model.shape(name)) for name in model.tensors) * kind.itemsize
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BuildError(
            f"{model.file.path} takes {needed / 1e9:.1f} GB in {folder.parent}, which has "
            f"{free / 1e9:.1f} GB free.",
            hint="Free some space, or set TTS_HOME to a folder on a larger disk.",
        )


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
