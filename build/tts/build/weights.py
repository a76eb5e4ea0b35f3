"""The tensors of a checkpoint, memory-mapped from its safetensors files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from tts.base.errors import CheckpointError
from tts.base.input_files import Unreadable, is_file

from .checkpoint_files import read_json_object, require_checkpoint_folder

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""The types of weights, by the names that safetensors gives them."""
DTYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
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
            entries = _read_header(file)
            for name in sorted(entries.keys() & self._entries.keys()):
                other = self._entries[name].file.name
                raise CheckpointError(
                    f"{checkpoint}: tensor {name!r:.100} is in {other} and in {file.name}.",
                    hint=_DAMAGED,
                )
            self._entries |= entries

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise CheckpointError unless a tensor has this shape and begins and ends with numbers."""
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
        """The tensor, or rows of it, read whole; raises CheckpointError if a value is no number."""
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
    """Where the tensors of a safetensors file lie; the library checks that they do."""
    try:
        with safe_open(file, framework="numpy") as checked:
            names = checked.keys()
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
        return {name: _entry(file, name, header[name], 8 + size) for name in names}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{file} is not a readable safetensors file: {error}", hint=_DAMAGED
        ) from error


def _entry(file: Path, name: str, item: Any, start: int) -> _Entry:
    if item["dtype"] not in TYPES:
        supported = ", ".join(TYPES)
        raise Unreadable(f"tensor {name!r:.100} is {item['dtype']}; supported: {supported}")
    offset = start + item["data_offsets"][0]
    return _Entry(file, TYPES[item["dtype"]], tuple(item["shape"]), offset)


def write_safetensors(
    file: Path, layout: Mapping[str, tuple[str, tuple[int, ...]]], values: Iterable[Array]
) -> None:
    """Write tensors of this layout from pieces in order, one in memory at a time, or OSError."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in layout.items():
        start, end = end, end + math.prod(shape) * TYPES[dtype].itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for piece in values:
            stream.write(piece.tobytes())
