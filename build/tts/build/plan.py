"""What is checked before anything is built: the checkpoint, and the deployment against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import paths
from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError, ConfigError
from .manifest import EngineConfig, Settings, settings_for
from .spec import Deployment, Role, VerifierSpec
from .tokenizer import Tokenizer
from .verifier_format import label_ids, verifier_format


@dataclass(frozen=True)
class Plan:
    """One engine to make: from what, where, and what it will be."""

    role: Role
    folder: Path
    checkpoint: Checkpoint
    settings: Settings
    config: EngineConfig


def plan_engine(deployment: Deployment, role: Role) -> Plan:
    """Check everything that can be known without building; raises CheckpointError, ConfigError."""
    spec = deployment.engines()[role]
    checkpoint = open_checkpoint(spec.checkpoint)
    model = checkpoint.config
    check_length(deployment, role, model.max_position_embeddings)
    tokenizer = Tokenizer(spec.checkpoint)
    if tokenizer.vocab_size > model.vocab_size:
        raise CheckpointError(
            f"{spec.checkpoint}: the tokenizer knows {tokenizer.vocab_size} tokens, but the "
            f"model's vocab_size is {model.vocab_size}.",
            hint="The tokenizer belongs to another model, or the embedding was not resized.",
        )
    for token in tokenizer.eos_ids:
        if not 0 <= token < model.vocab_size:
            raise CheckpointError(
                f"{spec.checkpoint}: eos_token_id {token} is outside the vocabulary of "
                f"{model.vocab_size} tokens."
            )
    labels = None
    if isinstance(spec, VerifierSpec):
        verifier_format(tokenizer, spec)  # refused here, not after minutes of building
        labels = label_ids(tokenizer, spec.labels)
    config = EngineConfig(
        target=deployment.target,
        role=role,
        architecture=model.architecture,
        vocab_size=model.vocab_size,
        output_vocab_size=len(labels) if labels else model.vocab_size,
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
    folder = paths.engine_dir(deployment.name, role)
    return Plan(role, folder, checkpoint, settings_for(deployment, role), config)


def check_length(deployment: Deployment, role: Role, max_position_embeddings: int) -> None:
    """Refuse a deployment whose sequences are longer than the model's positions."""
    spec = deployment.engines()[role]
    if spec.max_seq_len > max_position_embeddings:
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.max_seq_len is {spec.max_seq_len}, but "
            f"{spec.checkpoint} has max_position_embeddings {max_position_embeddings}.",
            hint=f"Set {role}.max_seq_len to at most {max_position_embeddings}.",
        )
