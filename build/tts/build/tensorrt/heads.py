"""Verifiers with a head of their own on TensorRT-LLM: refused, by name and with the reason."""

from __future__ import annotations

from ..engine_shape import engine_shape
from ..errors import ConfigError
from ..model_config import ModelConfig
from ..spec import Deployment, Role


def require_language_head(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Raise ConfigError for a head that no engine of these targets ends in.

    Raises CheckpointError where the deployment and the checkpoint disagree about the head.
    """
    head = engine_shape(model, deployment.engines()[role]).head
    if head is None:
        return
    reason = "an engine of TensorRT-LLM ends in one matrix, its language head"
    if len(head.layers) > 1:
        reason += ", which has no place for the ReLU between two layers"
    raise ConfigError(
        f"Deployment {deployment.name!r}: {role} judges with {head.text}, which target "
        f"{deployment.target} cannot compute: {reason}.",
        hint="Use a verifier that answers with label tokens, or target openvino "
        "(docs/verifiers.md).",
    )
