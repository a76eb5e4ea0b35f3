"""What an engine will be, and the checks that every target makes before it builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tts.base import paths
from tts.base.errors import CheckpointError, ConfigError

from .inputs import EngineInputs
from .manifest import BuildSettings, EngineConfig, Verification
from .spec import Deployment, EngineSpec, Role

QUESTION = 150
"""Tokens of a problem of MATH."""
STEP = 60
"""Tokens of a step of its solution: on average they are 50 to 100."""


@dataclass(frozen=True)
class BuildPlan:
    """One engine to build: from what, where, and what it will be."""

    inputs: EngineInputs
    folder: Path
    settings: BuildSettings
    config: EngineConfig

    @property
    def deployment(self) -> Deployment:
        """The deployment that the engine is a part of."""
        return self.inputs.deployment

    @property
    def role(self) -> Role:
        """Which of the two engines."""
        return self.inputs.role

    @property
    def spec(self) -> EngineSpec:
        """The engine's part of the deployment."""
        return self.inputs.spec


class VerificationOutcome(NamedTuple):
    """How well a built engine agrees with transformers, or why that is not known."""

    verification: Verification | None
    not_verified: str | None


def new_plan(inputs: EngineInputs, settings: BuildSettings, logits: int | None = None) -> BuildPlan:
    """The plan for a checkpoint that was checked; raises CheckpointError for its tokenizer."""
    check_tokenizer(inputs, inputs.shape.vocab_size)
    folder = paths.engine_dir(inputs.deployment.name, inputs.role)
    return BuildPlan(inputs, folder, settings, describe_engine(inputs, logits))


def describe_engine(inputs: EngineInputs, logits: int | None = None) -> EngineConfig:
    """What clients and templates need of an engine; `logits` are its columns, if not the usual."""
    model, labels, spec = inputs.shape, inputs.label_weights, inputs.spec
    return EngineConfig(
        target=inputs.deployment.target,
        role=inputs.role,
        architecture=model.architecture,
        vocab_size=model.vocab_size,
        output_vocab_size=logits or (model.vocab_size if spec.writes else len(labels)),
        label_token_ids=tuple(labels) or None,
        label_weights=tuple(labels.values()) or None,
        eos_token_ids=inputs.tokenizer.eos_ids,
        precision=spec.precision,
        max_position_embeddings=model.max_position_embeddings,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
    )


def check_tokenizer(inputs: EngineInputs, vocab_size: int) -> None:
    """Refuse a tokenizer that is not the model's, or that cannot make a verifier's dialogue."""
    tokenizer = inputs.tokenizer
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"{tokenizer.checkpoint}: the tokenizer has ids up to {tokenizer.vocab_size - 1}, but "
            f"the model's vocab_size is {vocab_size}.",
            hint="The tokenizer belongs to another model, or the embedding was not resized.",
        )
    for token in tokenizer.eos_ids:
        if not 0 <= token < vocab_size:
            raise CheckpointError(
                f"{tokenizer.checkpoint}: eos_token_id {token} is outside the vocabulary of "
                f"{vocab_size} tokens."
            )
    inputs.require_dialogue()  # refused here, not after minutes of building


def check_length(inputs: EngineInputs, max_position_embeddings: int | None = None) -> None:
    """Refuse sequences longer than the model's positions: the checkpoint's, or those given."""
    deployment, role, spec = inputs.deployment, inputs.role, inputs.spec
    max_position_embeddings = max_position_embeddings or inputs.shape.max_position_embeddings
    if spec.max_seq_len > max_position_embeddings:
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.max_seq_len is {spec.max_seq_len}, but "
            f"{spec.checkpoint} has max_position_embeddings {max_position_embeddings}.",
            hint=f"Set {role}.max_seq_len to at most {max_position_embeddings}.",
        )
