"""The tensors of a checkpoint, memory-mapped from its safetensors files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .checkpoint_files import read_json_object, require_checkpoint_folder
from .errors import CheckpointError
from .input_files import Unreadable, as_text, is_file, parse_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # bytes; the format's own limit
_MAX_RANK = 8  # dimensions; no supported tensor has more than two
_DAMAGED = "The file is damaged or incomplete: download or save the checkpoint again."
_BLOCK = 1 << 20  # values looked at together; bounds the temporaries
_ENDS = 4096  # values at either end of a tensor that are looked at before it is read
_EXPONENTS = {"float32": 0x7F80_0000, "float16": 0x7C00, "bfloat16": 0x7F80}
"""The bits that are all set in NaN and in an infinity, and in no number."""

Array = npt.NDArray[Any]


class _Entry(NamedTuple):
    file: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


class Weights:
    """Named tensors of one checkpoint; at first only headers are read."""

    def __init__(self, checkpoint: Path) -> None:
        """Read the headers of all shards; raises CheckpointError."""
        self.checkpoint = checkpoint
        self.files = weight_files(checkpoint)
        self._entries: dict[str, _Entry] = {}
        for file in self.files:
            found = _read_header(file)
            for name in sorted(found.keys() & self._entries.keys()):
                other = self._entries[name].file.name
                raise CheckpointError(
                    f"{checkpoint}: tensor {name!r:.100} is in {other} and in {file.name}.",
                    hint=_DAMAGED,
                )
            self._entries |= found

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Check that a tensor is there with this shape, and begins and ends with numbers.

        Raises CheckpointError if not. All its values are looked at when it is read.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise CheckpointError(
                f"{self.checkpoint} has no tensor {name!r} in "
                f"{', '.join(file.name for file in self.files)}.",
                hint="The weights do not fit config.json, or the checkpoint is incomplete.",
            )
        if entry.shape != shape:
            raise CheckpointError(
                f"{entry.file}: tensor {name!r} has shape {list(entry.shape)}, "
                f"but config.json asks for {list(shape)}.",
                hint="The weights and config.json belong to different models.",
            )
        self._require_ends(name)

    def require_ends(self) -> None:
        """Check that every tensor begins and ends with numbers; raises CheckpointError if not."""
        for name in self._entries:
            self._require_ends(name)

    def _require_ends(self, name: str) -> None:
        values = self.tensor(name).reshape(-1)
        self._require_numbers(name, values[:_ENDS])
        self._require_numbers(name, values[-_ENDS:])

    def _require_numbers(self, name: str, array: Array) -> None:
        if holds_no_number(array):
            raise CheckpointError(
                f"{self._entries[name].file}: tensor {name!r} holds values that are no numbers "
                "(NaN or infinite).",
                hint="The file is damaged, or of a training that failed: take the checkpoint from "
                "its publisher again.",
            )

    def numbers(self, name: str, rows: Sequence[int] | None = None) -> Array:
        """The tensor, or these rows of it, all of whose values are numbers.

        Raises CheckpointError if one is not. Checked values are then in memory for their next use.
        """
        array = self.tensor(name)
        if rows is not None:
            array = array[list(rows)]
        self._require_numbers(name, array)
        return array

    def tensor(self, name: str) -> Array:
        """The tensor as stored (fp32, fp16 or bf16), mapped copy-on-write: pages load on use."""
        entry = self._entries[name]
        mapped = np.memmap(entry.file, dtype=np.uint8, mode="c")
        data = mapped[entry.offset : entry.end]
        return np.asarray(data).view(entry.dtype).reshape(entry.shape)


def holds_no_number(array: Array) -> bool:
    """Whether a value of a tensor (fp32, fp16 or bf16) is NaN or infinite."""
    exponent = _EXPONENTS[array.dtype.name]
    bits = array.reshape(-1).view(np.dtype(f"u{array.dtype.itemsize}"))
    blocks = (bits[start : start + _BLOCK] for start in range(0, len(bits), _BLOCK))
    return any(bool(((block & exponent) == exponent).any()) for block in blocks)


def weight_files(checkpoint: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in a fixed order; raises CheckpointError."""
    require_checkpoint_folder(checkpoint)
    single, index = checkpoint / WEIGHTS, checkpoint / INDEX
    if single.is_file():  # transformers, too, prefers it to the index
        return [single]
    if index.is_file():
        return _shards(index)
    pickled = sorted(file.name for file in checkpoint.glob("*.bin"))
    if pickled:
        raise CheckpointError(
            f"{checkpoint} holds its weights as pickle only ({pickled[0]}), which can run code "
            "when it is read.",
            hint="Save it again as safetensors: model.save_pretrained(folder).",
        )
    raise CheckpointError(
        f"{checkpoint} has neither {WEIGHTS} nor {INDEX}.",
        hint="The checkpoint is incomplete: download or save it again.",
    )


def _shards(index: Path) -> list[Path]:
    mapping = read_json_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise CheckpointError(f"{index} has no weight_map.", hint=_DAMAGED)
    files = []
    for name in sorted({str(value) for value in mapping.values()}):
        if Path(name).name != name:
            raise CheckpointError(
                f"{index} names the shard {name!r:.300}, outside its own folder.", hint=_DAMAGED
            )
        file = index.parent / name
        if not is_file(file):
            raise CheckpointError(
                f"{index} names the shard {name:.300}, which is not in the folder.",
                hint="The checkpoint is incomplete: download the missing shard.",
            )
        files.append(file)
    return files


def _read_header(file: Path) -> dict[str, _Entry]:
    """Layout of a safetensors file: u64 header size, JSON header, data."""
    try:
        end = file.stat().st_size
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if not 0 < size <= min(_MAX_HEADER, end - 8):
                raise Unreadable(f"its header claims {size:,} bytes")
            header = parse_json(as_text(stream.read(size)), strict=True)
        if not isinstance(header, dict):
            raise Unreadable("its header is not an object")
        entries = {
            name: _entry(file, name, item, start=8 + size, end=end)
            for name, item in header.items()
            if name != "__metadata__"
        }
        _require_apart(entries)
        return entries
    except (OSError, Unreadable) as error:
        raise CheckpointError(
            f"{file} is not a readable safetensors file: {error}", hint=_DAMAGED
        ) from error


def _require_apart(entries: dict[str, _Entry]) -> None:
    """Refuse tensors that share bytes: one of them would be read as a part of another."""
    ordered = sorted((entry.offset, entry.end, name) for name, entry in entries.items())
    filled = [item for item in ordered if item[0] < item[1]]
    for (_, end, name), (start, _, following) in pairwise(filled):
        if start < end:
            raise Unreadable(f"the tensors {name!r:.100} and {following!r:.100} overlap")


def _entry(file: Path, name: str, item: Any, *, start: int, end: int) -> _Entry:
    match item:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(first), int(last)]}:
            pass
        case _:
            raise Unreadable(f"tensor {name!r:.100} lacks dtype, shape or data_offsets")
    dtype = _dtype(kind, name)
    if len(shape) > _MAX_RANK or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise Unreadable(f"tensor {name!r:.100} has the shape {shape!r:.100}")
    expected = math.prod(shape) * dtype.itemsize
    if not 0 <= first <= last or last - first != expected or start + last > end:
        raise Unreadable(f"tensor {name!r:.100} lies outside the file")
    return _Entry(file, dtype, tuple(shape), start + first)


def _dtype(name: str, tensor: str) -> np.dtype[Any]:
    if name == "BF16":
        return np.dtype(ml_dtypes.bfloat16)
    if name not in ("F16", "F32"):
        raise Unreadable(f"tensor {tensor!r:.100} is {name:.20}; supported: F32, F16, BF16")
    return np.dtype(np.float16 if name == "F16" else np.float32)
