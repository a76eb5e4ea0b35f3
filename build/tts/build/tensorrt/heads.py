"""Verifiers with a head of their own on TensorRT-LLM.

An engine ends in one matrix without a bias, the language head. A head of one layer becomes its
first two rows: before the conversion the checkpoint is written again as a causal model, whose
language head is these rows and zeros. Which columns of the logits to read is then known, and the
biases are added where the score is computed (prm_score). So the scores are exactly the head's. A
ReLU between two layers has no place in such an engine: TensorRT-LLM's model classes have none.
"""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path

import numpy as np

from tts.base.errors import ConfigError

from ..checkpoint import LM_HEAD, Checkpoint, expected_tensors
from ..checkpoint_files import read_json_object
from ..model_config import ModelConfig
from ..spec import Deployment, Role
from ..weights import DTYPE_NAMES, write_safetensors

_SMALL_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


def require_convertible(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Raise ConfigError for a head that the target cannot compute."""
    head = model.head
    if head is None or len(head.layers) == 1:
        return
    raise ConfigError(
        f"Deployment {deployment.name!r}: {role} judges with {head.text}, which target "
        f"{deployment.target} cannot compute: its engines end in one matrix, which has no place "
        "for the ReLU between two layers.",
        hint="Use a verifier that answers with label tokens, target openvino, or vLLM by url "
        "(docs/reference/verifiers.md).",
    )


def write_causal(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint with a head of one layer as a causal model; its code is left behind.

    The language head is the rows of "right" and "wrong", then zeros. Raises OSError.
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
