"""A GGUF file: its metadata, and where its tensors lie. Its values are left in the file.

The file comes from anywhere: every count and every offset is held to the file's size before it is
used, and so much metadata is read as any model has.
"""

from __future__ import annotations

import math
import mmap
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from ..extras import how_to_install
from ..input_files import Unreadable

_DAMAGED = "The file is damaged or incomplete: download it again."
_MAX_METADATA = 200_000_000  # bytes; the largest vocabularies take ten million
_MAX_RANK = 4  # dimensions; the format's own limit
_MAX_ALIGNMENT = 1 << 16
_VERSIONS = (2, 3)
_TEXT, _LIST = 8, 9
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""The format's kinds of numbers, by their codes."""

Value = Any
"""A text, a number, a list of texts, or an array of numbers."""


class TensorInfo(NamedTuple):
    """One tensor of a GGUF file."""

    shape: tuple[int, ...]
    """Rows first, as everywhere but in the format."""
    kind: int
    """How its values are stored: a code of the format."""
    offset: int
    """Bytes from the start of the file."""
    size: int
    """Bytes."""


class GgufFile:
    """The metadata of a GGUF file, read whole and checked; its tensors are mapped."""

    def __init__(self, path: Path) -> None:
        """Read the metadata of a file; raises CheckpointError, also where `gguf` is missing."""
        self.path = path
        library()  # said to be missing before anything else is
        try:
            with path.open("rb") as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            cursor = _Cursor(self._bytes)
            tensors, pairs = cursor.counts()
            self.metadata = cursor.pairs(pairs)
            self.tensors = cursor.tensors(tensors, self._alignment())
            _require_apart(self.tensors)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped: a ValueError
            raise CheckpointError(
                f"{path} is not a readable GGUF file: {error}.", hint=_DAMAGED
            ) from error

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", 32)
        if type(value) is not int or not 0 < value <= _MAX_ALIGNMENT or value & (value - 1):
            raise Unreadable(f"general.alignment is {value!r:.100}, no power of two")
        return value

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
        data = np.frombuffer(self._bytes, np.uint8, tensor.size, tensor.offset)
        return data.reshape(math.prod(tensor.shape[:-1]), -1)


class _Cursor:
    """A position in the metadata, which advances with each read."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        self._end = min(len(data), _MAX_METADATA)

    def _take(self, size: int) -> bytes:
        if size > self._end - self._at:
            where = f"of its first {self._end:,} bytes"
            raise Unreadable(f"its metadata claims {size:,} bytes at {self._at:,} {where}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))[0]

    def _text(self) -> str:
        return self._take(self._number("Q")).decode()  # UnicodeDecodeError is a ValueError

    def _array(self, kind: int, count: int) -> npt.NDArray[Any]:
        if kind not in _NUMBERS:
            raise Unreadable(f"its metadata holds a value of the unknown kind {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def counts(self) -> tuple[int, int]:
        """How many tensors and how many pairs of metadata the file begins with."""
        if self._take(4) != b"GGUF":
            raise Unreadable("it does not begin with GGUF")
        if (version := self._number("I")) not in _VERSIONS:
            raise Unreadable(f"it is of version {version}; supported: 2 and 3, little-endian")
        return self._number("Q"), self._number("Q")

    def pairs(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):  # each takes bytes, so that a wrong number comes to an end
            key = self._text()
            if key in found:
                raise Unreadable(f"its metadata holds {key!r:.100} twice")
            found[key] = self._value(self._number("I"))
        return found

    def _value(self, kind: int) -> Value:
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            (number,) = self._array(kind, 1)
            # an fp32 number is what it was written as: 1e-05, not 9.999999747378752e-06
            return float(str(number)) if number.dtype == np.float32 else number.item()
        kind, count = self._number("I"), self._number("Q")
        if kind == _TEXT:
            return [self._text() for _ in range(count)]
        return self._array(kind, count)

    def tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        entries = []
        for _ in range(count):
            name, rank = self._text(), self._number("I")
            if not 0 < rank <= _MAX_RANK:
                raise Unreadable(f"tensor {name!r:.100} has {rank} dimensions")
            shape = tuple(self._number("Q") for _ in range(rank))[::-1]
            entries.append((name, shape, self._number("I"), self._number("Q")))
        start = math.ceil(self._at / alignment) * alignment
        found: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in entries:
            if name in found:
                raise Unreadable(f"it holds the tensor {name!r:.100} twice")
            size = _bytes_of(name, shape, kind)
            if offset % alignment or start + offset + size > len(self._data):
                raise Unreadable(f"tensor {name!r:.100} lies outside the file")
            found[name] = TensorInfo(shape, kind, start + offset, size)
        return found


def _bytes_of(name: str, shape: tuple[int, ...], kind: int) -> int:
    quants = library()
    if kind not in quants.GGML_QUANT_SIZES:
        raise Unreadable(f"tensor {name!r:.100} is stored in a way unknown to `gguf` ({kind})")
    values, size = quants.GGML_QUANT_SIZES[kind]
    if not all(shape) or shape[-1] % values:
        raise Unreadable(f"tensor {name!r:.100} has the shape {list(shape)!r:.100}")
    return math.prod(shape) // int(values) * int(size)


def _require_apart(tensors: dict[str, TensorInfo]) -> None:
    """Refuse tensors that share bytes: one of them would be read as a part of another."""
    ordered = sorted((tensor.offset, tensor.size, name) for name, tensor in tensors.items())
    for (offset, size, name), (start, _, following) in pairwise(ordered):
        if offset + size > start:
            raise Unreadable(f"the tensors {name!r:.100} and {following!r:.100} overlap")


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
