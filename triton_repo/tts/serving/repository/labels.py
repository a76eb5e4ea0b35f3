"""Which columns of the verifier's logits are the labels, and which token ids these are."""

from __future__ import annotations

from tts.build.errors import CheckpointError
from tts.build.inputs import Inputs
from tts.build.spec import Deployment, Labels, VerifierSpec
from tts.build.tensorrt.model_shape import known_model
from tts.build.verifiers.dialogue import head_kind
from tts.build.verifiers.head import HEAD_COLUMNS


def label_columns(deployment: Deployment, inputs: Inputs | None = None) -> list[int]:
    """Columns of the label logits, the positive label first; raises CheckpointError.

    A compiled TensorRT-LLM engine answers with its whole vocabulary, so the columns are token ids;
    the others have one column per label. A verifier that is not compiled has none.
    """
    return label_token_ids(deployment, inputs) if deployment.target == "tensorrt" else [0, 1]


def label_token_ids(deployment: Deployment, inputs: Inputs | None = None) -> list[int]:
    """Token ids of the labels, the positive one first.

    Those of the verifier's tokenizer, or, before its checkpoint is downloaded, those of the
    published model of its name. Raises CheckpointError if it is neither, or if its tokenizer cannot
    make the labels or the dialogue. Columns that stand for no tokens are the first two. Nothing is
    read of a verifier that is not compiled.
    """
    spec = deployment.verifier
    if not isinstance(spec, VerifierSpec):
        return []
    verifier = (inputs or Inputs(deployment)).engines["verifier"]
    if (spec.checkpoint / "tokenizer.json").is_file():
        _ = verifier.dialogue
        return list(verifier.label_columns or ())
    if (verifier.is_here or verifier.is_published) and verifier.shape.head:
        return list(HEAD_COLUMNS)
    return _published(spec, spec.labels)


def label_biases(deployment: Deployment, inputs: Inputs | None = None) -> list[float]:
    """The bias added to the label logits, since the engine's matrix has none; empty for most.

    Raises CheckpointError for a head that is not in the checkpoint.
    """
    spec = deployment.verifier
    if not isinstance(spec, VerifierSpec):
        return []
    if deployment.target != "tensorrt" or head_kind(spec.checkpoint, spec) == "labels":
        return []
    if not (spec.checkpoint / "config.json").is_file():
        raise CheckpointError(
            f"The biases of the verifier's head are not known: {spec.checkpoint} is not here.",
            hint="Download the verifier's checkpoint to that folder: its weights hold them.",
        )
    verifier = (inputs or Inputs(deployment)).engines["verifier"]
    _, bias = verifier.checkpoint.head_layers()[-1]
    return [float(value) for value in bias]


def _published(spec: VerifierSpec, labels: Labels) -> list[int]:
    known = known_model(spec.checkpoint)
    ids = (known and (known.label_token_ids or known.answer_token_ids)) or {}
    missing = [label for label in (labels.positive, labels.negative) if label not in ids]
    if missing:
        raise CheckpointError(
            f"The token ids of the labels {' and '.join(map(repr, missing))} are not known: "
            f"{spec.checkpoint} has no tokenizer.json, and "
            + ("no verifier of that name is known." if not ids else "its published ones differ."),
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    return [ids[labels.positive], ids[labels.negative]]
