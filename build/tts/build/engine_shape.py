"""A checkpoint as its role uses it: a generator by its language head, a verifier as stated."""

from __future__ import annotations

from dataclasses import replace

from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError
from .model_config import ModelConfig, read_model_config
from .spec import READ_AT_LABELS, EngineSpec, Labels, VerifierSpec
from .verifiers.head import VALUE_HEAD


def engine_shape(model: ModelConfig, spec: EngineSpec) -> ModelConfig:
    """The shape with the head that the engine is to have.

    Raises CheckpointError for a generator without a language head, and where the deployment states
    a head that the checkpoint does not have, or labels for one that has no use for them.
    """
    if not isinstance(spec, VerifierSpec):
        if model.head:
            raise CheckpointError(
                f"{spec.checkpoint}/config.json names a verifier with {model.head.text}, which "
                "cannot generate.",
                hint="Set generator.checkpoint to a causal language model.",
            )
        return model
    if spec.head == "value" and model.head is None:
        model = replace(model, head=VALUE_HEAD)  # beside the language head, as TRL saves it
    found = model.head.kind if model.head else "labels"
    if spec.head not in (None, found):
        raise CheckpointError(
            f"verifier.head is {spec.head!r}, but {spec.checkpoint}/config.json names an "
            f"architecture with {judged_by(model, spec)}.",
            hint="Leave verifier.head out to take what the checkpoint says.",
        )
    if model.head and spec.labels != Labels():
        raise CheckpointError(
            f"verifier.labels are given, but {spec.checkpoint} judges by {model.head.text}.",
            hint="Remove verifier.labels from the deployment file.",
        )
    return model


def judged_by(model: ModelConfig, spec: EngineSpec) -> str:
    """What a verifier of this shape judges with, in words."""
    if model.head:
        return model.head.text
    return spec.facts.judged_by if isinstance(spec, VerifierSpec) else READ_AT_LABELS


def read_engine_shape(spec: EngineSpec) -> ModelConfig:
    """`engine_shape` of the checkpoint's config.json; raises CheckpointError."""
    return engine_shape(read_model_config(spec.checkpoint), spec)


def open_engine_checkpoint(spec: EngineSpec) -> Checkpoint:
    """The checkpoint of an engine with every tensor it is made from.

    Raises CheckpointError; also for a head that must be stated, or is stated wrongly.
    """
    checkpoint = open_checkpoint(spec.checkpoint, read_engine_shape(spec))
    if isinstance(spec, VerifierSpec) and spec.head is None and checkpoint.config.head is None:
        own = f"{VALUE_HEAD.layers[0]}.weight"
        if own in checkpoint.weights:
            raise CheckpointError(
                f"{spec.checkpoint} has a language head and a value head ({own}).",
                hint="Set verifier.head in the deployment file to value or to labels.",
            )
    return checkpoint
