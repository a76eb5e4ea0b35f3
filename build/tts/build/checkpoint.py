"""A Hugging Face checkpoint folder: opening it, checking it, identifying it by its content."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from tts.base.errors import CheckpointError

from .checkpoint_files import read_json_object
from .model_config import ModelConfig, read_model_config
from .weights import DTYPE_NAMES, INDEX, Array, Weights, weight_files, write_safetensors

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
CHECKPOINT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    INDEX,
)
"""Files beside the weights that an engine depends on: its shape, end tokens and label ids."""
_SMALL_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint: its shape is supported and every tensor is there."""

    path: Path
    config: ModelConfig
    weights: Weights

    @property
    def num_parameters(self) -> int:
        """Parameters of the model; a tied embedding counts once."""
        return sum(math.prod(shape) for shape in expected_tensors(self.config).values())

    def head_layers(self) -> list[tuple[Array, Array]]:
        """Weight [outputs, inputs] and bias [outputs] of each layer of a verifier's own head.

        There is a ReLU between layers. The last layer's outputs are the logits of "right" and
        "wrong". Two classes are turned round, as class 1 is the positive one; a value v becomes
        the pair (v, 0), whose softmax is v's sigmoid.
        """
        head, tensor = self.config.head, self.weights.numbers
        assert head is not None
        layers = []
        for name in head.layers:
            weight = tensor(f"{name}.weight")
            has_bias = f"{name}.bias" in self.weights
            bias = tensor(f"{name}.bias") if has_bias else np.zeros(len(weight), weight.dtype)
            layers.append((weight, bias))
        weight, bias = layers[-1]
        if head.kind == "value":
            layers[-1] = np.pad(weight, ((0, 1), (0, 0))), np.pad(bias, (0, 1))
        else:
            layers[-1] = weight[::-1], bias[::-1]
        return layers


class FileStamp(BaseModel):
    """One file of a checkpoint as it was when it was hashed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


def open_checkpoint(path: Path, config: ModelConfig | None = None) -> Checkpoint:
    """Open a checkpoint folder and check it, of the weights the ends; raises CheckpointError.

    `config` is its shape where it is used otherwise than config.json alone says.
    """
    config = config or read_model_config(path)
    weights = Weights(path)
    for name, shape in expected_tensors(config).items():
        weights.require(name, shape)
    return Checkpoint(path, config, weights)


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of every tensor that the model is computed from."""
    hidden, vocab, inner = config.hidden_size, config.vocab_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.qkv_bias:
        layer["self_attn.q_proj.bias"] = (queries,)
        layer["self_attn.k_proj.bias"] = layer["self_attn.v_proj.bias"] = (keys,)
    if config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.mlp_bias:
        layer["mlp.gate_proj.bias"] = layer["mlp.up_proj.bias"] = (inner,)
        layer["mlp.down_proj.bias"] = (hidden,)
    if config.qk_norm:
        layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (config.head_dim,)
    tensors: dict[str, tuple[int, ...]] = {EMBEDDING: (vocab, hidden), FINAL_NORM: (hidden,)}
    if config.head:
        tensors |= config.head.tensors(hidden)
    elif not config.tie_word_embeddings:
        tensors[LM_HEAD] = (vocab, hidden)
    for index in range(config.num_layers):
        tensors |= {f"{layer_prefix(index)}{name}": shape for name, shape in layer.items()}
    return tensors


def layer_prefix(index: int) -> str:
    """Prefix of the tensor names of one decoder layer."""
    return f"model.layers.{index}."


def stamp_files(checkpoint: Path, earlier: Iterable[FileStamp] = ()) -> list[FileStamp]:
    """Size, time and sha256 of every file that an engine depends on.

    A file whose size and times are those of an `earlier` stamp is not read again: its recorded
    sha256 is taken, so that a large checkpoint is hashed once. Raises CheckpointError.
    """
    recorded = {stamp.name: stamp for stamp in earlier}
    present = [file for name in CHECKPOINT_FILES if (file := checkpoint / name).is_file()]
    files = [*present, *weight_files(checkpoint)]
    return [_stamp(file, recorded.get(file.name)) for file in files]


def file_sha256(file: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal; raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_hash(stamps: Iterable[FileStamp]) -> str:
    """One sha256 for the content of all files: names and bytes, not times."""
    lines = sorted(f"{stamp.sha256}  {stamp.name}\n" for stamp in stamps)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _stamp(file: Path, earlier: FileStamp | None) -> FileStamp:
    try:
        status = file.stat()
        current = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if earlier is not None and (earlier.size, earlier.mtime_ns, earlier.ctime_ns) == current:
            return earlier
        sha256 = file_sha256(file)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    size, mtime_ns, ctime_ns = current
    return FileStamp(name=file.name, size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns, sha256=sha256)


def write_causal(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint with a head of one layer as a causal model; its code is left behind.

    Engines of TensorRT-LLM end in one matrix without a bias, the language head. So a head of one
    layer becomes its first two rows, of "right" and "wrong", in front of zeros: which columns of
    the logits to read is then known, the biases are added where the score is computed (prm_score),
    and scores are exactly the head's. Raises OSError.
    """
    config = checkpoint.config
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = read_json_object(checkpoint.path / "config.json")
    for field in ("auto_map", "num_labels", "id2label", "label2id"):
        data.pop(field, None)
    data |= {"architectures": [config.architecture], "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for name in _SMALL_FILES:
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, folder / name)
    ((weight, _),) = checkpoint.head_layers()
    language = np.zeros((config.vocab_size, config.hidden_size), weight.dtype)
    language[: len(weight)] = weight
    assert config.head is not None
    own = config.head.tensors(config.hidden_size)
    names = [name for name in expected_tensors(config) if name not in own]
    weights = checkpoint.weights
    tensors = {name: weights.tensor(name) for name in names} | {LM_HEAD: language}  # mapped
    layout = {name: (DTYPE_NAMES[each.dtype], each.shape) for name, each in tensors.items()}
    values = (weights.numbers(name) for name in names)
    write_safetensors(folder / "model.safetensors", layout, chain(values, [language]))
