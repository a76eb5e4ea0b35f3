"""Which columns of a TensorRT-LLM verifier's logits are the labels: their token ids."""

from __future__ import annotations

from tts.build.errors import CheckpointError
from tts.build.inputs import EngineInputs
from tts.build.spec import VerifierSpec
from tts.build.tensorrt.model_shape import known_model
from tts.build.verifiers.dialogue import head_kind
from tts.build.verifiers.head import HEAD_COLUMNS


def label_token_ids(spec: VerifierSpec, verifier: EngineInputs) -> list[int]:
    """Token ids of the labels, the best first.

    Those of the verifier's tokenizer, or, before its checkpoint is downloaded, those of the
    published model of its name. Raises CheckpointError if it is neither, or if its tokenizer cannot
    make the labels or the dialogue. Columns that stand for no tokens are the first two.
    """
    if (spec.checkpoint / "tokenizer.json").is_file():
        _ = verifier.dialogue
        return list(verifier.label_weights)
    if (verifier.is_here or verifier.is_published) and verifier.shape.head:
        return list(HEAD_COLUMNS)
    return _published(spec)


def label_biases(spec: VerifierSpec, verifier: EngineInputs) -> list[float]:
    """The bias added to the label logits, since the engine's matrix has none; empty for most.

    Raises CheckpointError for a head that is not in the checkpoint.
    """
    if head_kind(spec.checkpoint, spec) == "labels":
        return []
    if not (spec.checkpoint / "config.json").is_file():
        raise CheckpointError(
            f"The biases of the verifier's head are not known: {spec.checkpoint} is not here.",
            hint="Download the verifier's checkpoint to that folder: its weights hold them.",
        )
    _, bias = verifier.checkpoint.head_layers()[-1]
    return [float(value) for value in bias]


def _published(spec: VerifierSpec) -> list[int]:
    known = known_model(spec.checkpoint)
    ids = (known and (known.label_token_ids or known.answer_token_ids)) or {}
    missing = [label for label in spec.labels if label not in ids]
    if missing:
        raise CheckpointError(
            f"The token ids of the labels {' and '.join(map(repr, missing))} are not known: "
            f"{spec.checkpoint} has no tokenizer.json, and "
            + ("no verifier of that name is known." if not ids else "its published ones differ."),
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    return [ids[label] for label in spec.labels]
