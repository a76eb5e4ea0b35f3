"""Which columns of a TensorRT-LLM verifier's logits are the labels: their token ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tts.base.errors import CheckpointError
from tts.build.inputs import EngineInputs
from tts.build.tensorrt.model_shape import known_model
from tts.build.verifiers.dialogue import head_kind
from tts.build.verifiers.head import HEAD_COLUMNS, HEAD_WEIGHTS


def label_weights(inputs: EngineInputs) -> dict[int, float]:
    """Token ids of the labels with their weights, the best first.

    The ids are those of the verifier's tokenizer, or, before its checkpoint is downloaded, those of
    the published model of its name. Raises CheckpointError if it is neither, or if its tokenizer
    cannot make the labels or the dialogue. Columns that stand for no tokens are the first two.
    """
    if (inputs.folder / "tokenizer.json").is_file():
        return inputs.label_weights
    if (inputs.is_here or inputs.is_published) and inputs.shape.head:
        return dict(zip(HEAD_COLUMNS, HEAD_WEIGHTS, strict=True))
    return _published(inputs.folder, inputs.verifier.labels)


def label_biases(inputs: EngineInputs) -> list[float]:
    """The bias added to the label logits, since the engine's matrix has none; empty for most.

    Raises CheckpointError for a head that is not in the checkpoint.
    """
    if head_kind(inputs.folder, inputs.verifier) == "labels":
        return []
    if not inputs.is_here:
        raise CheckpointError(
            f"The biases of the verifier's head are not known: {inputs.folder} is not here.",
            hint="Download the verifier's checkpoint to that folder: its weights hold them.",
        )
    _, bias = inputs.checkpoint.head_layers()[-1]
    return [float(value) for value in bias]


def _published(checkpoint: Path, labels: Mapping[str, float]) -> dict[int, float]:
    model = known_model(checkpoint)
    ids = (model and (model.label_token_ids or model.answer_token_ids)) or {}
    if not labels:
        raise CheckpointError(
            f"The labels behind the verifier's critiques are not known: {checkpoint} has no "
            "tokenizer.json.",
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    missing = [label for label in labels if label not in ids]
    if missing:
        raise CheckpointError(
            f"The token ids of the labels {' and '.join(map(repr, missing))} are not known: "
            f"{checkpoint} has no tokenizer.json, and "
            + ("no verifier of that name is known." if not ids else "its published ones differ."),
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    return {ids[label]: weight for label, weight in labels.items()}
