"""What an engine will be, and the checks that every target makes before it builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from . import paths
from .errors import CheckpointError, ConfigError
from .manifest import EngineConfig, Settings, Verification
from .model_config import ModelConfig
from .spec import Deployment, EngineSpec, Role, RoleSpec, VerifierRole, VerifierSpec
from .tokenizer import Tokenizer
from .verifiers.dialogue import column_tokens, verifier_dialogue


@dataclass(frozen=True)
class BuildPlan:
    """One engine to build: from what, where, and what it will be."""

    deployment: Deployment
    role: Role
    folder: Path
    settings: Settings
    config: EngineConfig
    judged_by: str | None = None
    """What a verifier judges with, in words."""

    @property
    def spec(self) -> EngineSpec:
        """The engine's part of the deployment."""
        return self.deployment.engines()[self.role]


class VerificationOutcome(NamedTuple):
    """How well a built engine agrees with transformers, or why that is not known."""

    verification: Verification | None
    not_verified: str | None


def new_plan(
    deployment: Deployment,
    role: Role,
    model: ModelConfig,
    settings: Settings,
    *,
    logits: int | None = None,
    judged_by: str | None = None,
) -> BuildPlan:
    """The plan for a checkpoint whose shape and weights the target has checked.

    `logits` as for `describe_engine`. Raises CheckpointError for a tokenizer that is not the
    model's, or that cannot make a verifier's dialogue.
    """
    spec = deployment.engines()[role]
    tokenizer = Tokenizer(spec.checkpoint)
    check_tokenizer(tokenizer, model.vocab_size, spec)
    config = describe_engine(deployment, role, model, tokenizer, logits)
    folder = paths.engine_dir(deployment.name, role)
    return BuildPlan(deployment, role, folder, settings, config, judged_by)


def describe_engine(
    deployment: Deployment,
    role: Role,
    model: ModelConfig,
    tokenizer: Tokenizer,
    logits: int | None = None,
) -> EngineConfig:
    """What clients and templates need to know of an engine of this model.

    `logits` is the number of its columns; None: one per label of a verifier, or per token.
    """
    spec = deployment.engines()[role]
    labels = column_tokens(tokenizer, spec) if isinstance(spec, VerifierSpec) else None
    return EngineConfig(
        target=deployment.target,
        role=role,
        architecture=model.architecture,
        vocab_size=model.vocab_size,
        output_vocab_size=logits or (model.vocab_size if labels is None else len(labels)),
        label_token_ids=labels,
        eos_token_ids=tokenizer.eos_ids,
        precision=spec.precision,
        max_position_embeddings=model.max_position_embeddings,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
    )


def check_tokenizer(tokenizer: Tokenizer, vocab_size: int, spec: RoleSpec) -> None:
    """Refuse a tokenizer that is not the model's, or that cannot make a verifier's dialogue."""
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
    if isinstance(spec, VerifierRole):
        verifier_dialogue(tokenizer, spec)  # refused here, not after minutes of building


def check_length(deployment: Deployment, role: Role, max_position_embeddings: int) -> None:
    """Refuse a deployment whose sequences are longer than the model's positions."""
    spec = deployment.engines()[role]
    if spec.max_seq_len > max_position_embeddings:
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.max_seq_len is {spec.max_seq_len}, but "
            f"{spec.checkpoint} has max_position_embeddings {max_position_embeddings}.",
            hint=f"Set {role}.max_seq_len to at most {max_position_embeddings}.",
        )
