"""A GGUF file: its metadata and its tensors, as the package `gguf` reads them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from ..extras import how_to_install

_DAMAGED = "The file is damaged or incomplete: download it again."


class TensorInfo(NamedTuple):
    """One tensor of a GGUF file."""

    shape: tuple[int, ...]
    """Rows first, as everywhere but in the format."""
    kind: int
    """How its values are stored: a code of the format."""
    data: npt.NDArray[Any]
    """As it is stored, mapped."""


class GgufFile:
    """The metadata of a GGUF file; its tensors are mapped."""

    def __init__(self, path: Path) -> None:
        """Read the metadata of a file; raises CheckpointError, also where `gguf` is missing."""
        self.path = path
        try:
            reader = _reader(path)
            self.metadata = {name: _value(field) for name, field in reader.fields.items()}
            self.tensors = {
                each.name: TensorInfo(
                    tuple(map(int, each.shape[::-1])), int(each.tensor_type), each.data
                )
                for each in reader.tensors
            }
        except (OSError, ValueError, LookupError, OverflowError, TypeError) as error:
            raise CheckpointError(
                f"{path} is not a readable GGUF file: {error}.", hint=_DAMAGED
            ) from error

    def text(self, key: str, default: str | None = None) -> str:
        """A text of the metadata; raises CheckpointError if it is none, or missing."""
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, "a text")
        return value

    def refuse(self, key: str, supported: str) -> NoReturn:
        """Raise the CheckpointError for a field of the metadata."""
        value = self.metadata.get(key)
        said = f"{key} is {value!r:.200}" if key in self.metadata else f"there is no {key}"
        raise CheckpointError(f"{self.path}: {said}; supported: {supported}.")

    def rows(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, a row of its values after the other: [rows, bytes], mapped."""
        tensor = self.tensors[name]
        return tensor.data.view(np.uint8).reshape(math.prod(tensor.shape[:-1]), -1)


def _reader(path: Path) -> Any:
    """The package's reader of a file, held to the file's size.

    By itself it takes what lies beyond the end for empty, and reads a list that claims 2**62
    numbers to its end.
    """
    quants = library()

    class Reader(quants.GGUFReader):  # type: ignore[misc, name-defined]
        def _get(self, offset: int, dtype: Any, count: int = 1, **order: Any) -> Any:
            end = int(offset) + np.dtype(dtype).itemsize * int(count)
            if end > len(self.data):
                raise ValueError(f"it claims bytes up to {end:,} of {len(self.data):,}")
            return super()._get(offset, dtype, count, **order)

    reader = Reader(path)
    if reader.byte_order != "I":
        raise ValueError("its numbers are big-endian")
    return reader


def _value(field: Any) -> Any:
    """A text, a number, a list of texts, or an array of numbers."""
    kinds = library().GGUFValueType
    if field.types[0] == kinds.FLOAT32:
        # an fp32 number is what it was written as: 1e-05, not 9.999999747378752e-06
        return float(str(field.parts[-1][0]))
    value = field.contents()
    is_numbers = isinstance(value, list) and field.types[-1] != kinds.STRING
    return np.array(value) if is_numbers else value


def library() -> Any:
    """The package `gguf`, which knows how values are quantised; raises CheckpointError."""
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            f"A checkpoint is a GGUF file, and the package that reads them is missing: {error}.",
            hint=f"Install it: {how_to_install('gguf')}",
        ) from error
    return gguf
