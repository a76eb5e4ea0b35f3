"""What scores depend on, in three words: by these a measurement knows its verifier again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tts.base import paths

from ..checkpoint import content_hash, file_sha256, stamp_files
from ..inputs import EngineInputs
from ..manifest import read_manifest
from ..spec import (
    Deployment,
    RemoteVerifier,
    VerifierCommand,
    VerifierFunction,
    VerifierRole,
)
from .critique import Critic
from .prompted import Prompted

_QUESTION = "What is 1 + 1?"
_STEPS = ("1 + 1 = 2", "The answer is 2.")
_DIGITS = 16


@dataclass(frozen=True)
class VerifierIdentity:
    """A verifier by what its scores depend on."""

    model: str
    """Digest of the checkpoint, or of the code; of a model elsewhere, the name it is served by."""
    format: str
    """Its format; `function` or `command` for one that takes text."""
    template: str
    """Digest of what it reads for a question and two steps, labels included; empty for text."""


def verifier_identity(deployment: Deployment, code: str | None = None) -> VerifierIdentity:
    """The identity of a deployment's verifier; raises CheckpointError, ConfigError, OSError.

    `code`: FILE.py:NAME of a function that scores in its place. Of a large checkpoint only files
    are read that have changed since its engine was built.
    """
    spec = deployment.verifier
    if code is not None:
        return _of_code(code)
    if isinstance(spec, VerifierFunction):
        return _of_code(spec.function)
    if isinstance(spec, VerifierCommand):
        return VerifierIdentity(_digest(repr(sorted(spec.record.items()))), "command", "")
    inputs = EngineInputs(deployment, "verifier")
    if isinstance(spec, RemoteVerifier):
        model = spec.model or inputs.folder.name
    else:
        role = "generator" if deployment.shares_engine else "verifier"
        manifest = read_manifest(paths.engine_dir(deployment.name, role))
        model = content_hash(
            stamp_files(inputs.folder, manifest.checkpoint_files if manifest else ())
        )[:_DIGITS]
    return VerifierIdentity(model, spec.format, _template(inputs, spec))


def _of_code(function: str) -> VerifierIdentity:
    file, _, name = function.rpartition(":")
    return VerifierIdentity(f"{name}@{file_sha256(Path(file))[:_DIGITS]}", "function", "")


def _template(inputs: EngineInputs, spec: VerifierRole) -> str:
    match inputs.dialogue:
        case None:
            return ""
        case Critic() as critic:
            read = [critic.prompt(_QUESTION, _STEPS)]
        case dialogue if spec.reads_whole:
            read = [dialogue.first(_QUESTION, "\n\n".join(_STEPS))]
        case dialogue:
            whole = dialogue.extend(dialogue.first(_QUESTION, _STEPS[0]), _STEPS[1], 2)
            read = dialogue.by_criterion(whole) if isinstance(dialogue, Prompted) else [whole]
    return _digest(repr([*(ids.tolist() for ids in read), spec.labels]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
