"""Export of a checkpoint to a stateful OpenVINO model, and how it is saved."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint import Checkpoint
from ..spec import Precision
from .transformer import ScoreColumns, Transformer

if TYPE_CHECKING:
    from openvino import Model

MODEL_FILE = "openvino_model.xml"
WEIGHTS_FILE = "openvino_model.bin"
EXPORTER_VERSIONS: Mapping[Precision, int] = {"fp32": 1, "bf16": 2, "int8": 1}
"""Raised where the exported graph changes, so that engines made before are built again."""


def export_model(
    checkpoint: Checkpoint,
    precision: Precision,
    score: ScoreColumns | None = None,
) -> Model:
    """Build the model of a checkpoint.

    With `score` the output is the two logits of a score, alone or behind those of the vocabulary;
    the embedding keeps the whole vocabulary. Of a checkpoint with a head of its own it is the
    head's two columns (see head_layers). Weights are mapped from the checkpoint, so it must stay in
    place until the model is saved.
    """
    return Transformer(checkpoint, precision, score).model()


def save_model(model: Model, folder: Path) -> None:
    """Write openvino_model.xml and .bin, and read them back; raises OSError when that fails."""
    import openvino

    try:
        openvino.save_model(model, folder / MODEL_FILE, compress_to_fp16=False)
        _keep_compressed(folder / MODEL_FILE)
        # A full disk can leave a short file without a word: reading checks every offset.
        openvino.Core().read_model(folder / MODEL_FILE)
    except RuntimeError as error:
        raise OSError(f"OpenVINO could not write the model: {error}") from error


def _keep_compressed(file: Path) -> None:
    """Mark the Convert of every bf16 weight as decompression, in the saved graph.

    An unmarked Convert of a constant is computed when the model is compiled: a copy of all weights
    in fp32, twice the file, which stays beside the copies that the CPU's kernels make. Python can
    set no attribute that is saved, so the mark is written where the plug-in reads it.
    """
    tree = ElementTree.parse(file)
    converts = tree.iterfind("layers/layer[@type='Convert']")
    weights = [node for node in converts if node.find("input/port[@precision='BF16']") is not None]
    for node in weights:
        mark = ElementTree.Element("rt_info")
        ElementTree.SubElement(mark, "attribute", name="decompression", version="0")
        node.insert(1, mark)  # the schema's order: data, rt_info, input, output
    if weights:
        tree.write(file, encoding="utf-8", xml_declaration=True)
