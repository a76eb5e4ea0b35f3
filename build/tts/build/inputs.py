"""What the engines of a deployment are made from, each part opened once and handed on.

A verifier's identity is what its scores depend on, in three words: by these a measurement knows its
verifier again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tts.base import paths
from tts.base.errors import CheckpointError

from .checkpoint import (
    CHECKPOINT_FILES,
    Checkpoint,
    content_hash,
    file_sha256,
    open_checkpoint,
    stamp_files,
)
from .manifest import read_manifest
from .model_config import ModelConfig, known_model, shape_of
from .spec import (
    READ_AT_LABELS,
    Deployment,
    EngineSpec,
    RemoteVerifier,
    Role,
    RoleSpec,
    StartedSpec,
    VerifierCommand,
    VerifierFunction,
    VerifierRole,
    VerifierSpec,
)
from .spec.verifier import own_labels
from .tokenizer import Tokenizer
from .verifier_heads import HEAD_WEIGHTS, VALUE_HEAD
from .verifiers.critique import Critic, critic
from .verifiers.dialogue import VerifierDialogue, column_tokens, verifier_dialogue
from .verifiers.untrained import Prompted
from .weights import Weights

_QUESTION = "What is 1 + 1?"
_STEPS = ("1 + 1 = 2", "The answer is 2.")
_DIGITS = 16


class EngineInputs:
    """The inputs of one role; each is read when it is first asked for, and kept.

    A role whose engine runs elsewhere has tokenizer and dialogue, and a shape if its tokenizer's
    folder has a config.json. Each raises CheckpointError where it cannot be read.
    """

    def __init__(self, deployment: Deployment, role: Role) -> None:
        """Nothing is read yet."""
        self.deployment = deployment
        self.role: Role = role
        self.role_spec = deployment.roles()[role]
        self.folder = self.role_spec.tokenizer_folder
        self.stamps = self.stamps_now()

    @property
    def spec(self) -> EngineSpec:
        """The compiled engine's part of the deployment."""
        return self.deployment.engines()[self.role]

    @property
    def is_here(self) -> bool:
        """Whether the checkpoint, or at least what describes it, is on this machine."""
        return (self.folder / "config.json").is_file()

    @property
    def is_published(self) -> bool:
        """Whether the shape is known by the checkpoint's name alone, and serves this target."""
        return self.deployment.target != "openvino" and known_model(self.folder) is not None

    @cached_property
    def shape(self) -> ModelConfig:
        """The shape as the role uses it: of the checkpoint, or as published before it is here."""
        if isinstance(self.role_spec, StartedSpec):
            return shape_of(self.folder, self.role_spec.target)
        if not isinstance(self.role_spec, EngineSpec):
            return shape_of(self.folder)
        return engine_shape(shape_of(self.folder, self.deployment.target), self.spec)

    def has_shape(self) -> bool:
        """Whether the shape can be read, or is known by the checkpoint's name."""
        try:
            return (self.is_here or self.is_published) and bool(self.shape)
        except CheckpointError:
            return False

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint with every tensor; raises CheckpointError, also for an unclear head."""
        checkpoint, spec = open_checkpoint(self.folder, self.shape), self.spec
        if isinstance(spec, VerifierSpec) and spec.head is None and self.shape.head is None:
            own = f"{VALUE_HEAD.layers[0]}.weight"
            if own in checkpoint.weights:
                raise CheckpointError(
                    f"{self.folder} has a language head and a value head ({own}).",
                    hint="Set verifier.head in the deployment file to value or to labels.",
                )
        return checkpoint

    def require_weights(self) -> Weights:
        """The weights, checked as far as the toolkit knows what they must be."""
        if not self.shape.experts:
            return self.checkpoint.weights
        weights = Weights(self.folder)
        weights.require_ends()  # the converter checks that they are all there
        return weights

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        spec = self.role_spec
        return Tokenizer(self.folder, spec.chat_template_kwargs, spec.chat_template)

    @cached_property
    def dialogue(self) -> VerifierDialogue | Critic | None:
        """How steps are put to a verifier; None for a generator."""
        spec = self.role_spec
        if not isinstance(spec, VerifierRole):
            return None
        return (critic if spec.facts.writes else verifier_dialogue)(self.tokenizer, spec)

    @cached_property
    def judge(self) -> EngineInputs | None:
        """The verifier that the engine is: this, or the one that shares it; None for neither."""
        if self.role == "generator" and self.deployment.shares_engine:
            return EngineInputs(self.deployment, "verifier")
        return self if isinstance(self.role_spec, VerifierRole) else None

    @property
    def verifier(self) -> VerifierRole:
        """The verifier's part of the deployment, of a role that is one."""
        assert isinstance(self.role_spec, VerifierRole)
        return self.role_spec

    def require_dialogue(self) -> VerifierDialogue | Critic | None:
        """How steps are put to the engine's verifier; None: it is none. Raises CheckpointError."""
        return self.judge.dialogue if self.judge else None

    @cached_property
    def label_weights(self) -> dict[int, float]:
        """The weights of the tokens that a score is read at, 0 and 1 of a head; empty without."""
        if self.judge is None:
            return {}
        spec, dialogue = self.judge.verifier, self.require_dialogue()
        if isinstance(dialogue, Critic):
            return dict(dialogue.asks.labels) if dialogue.asks else {}
        tokens = column_tokens(self.judge.tokenizer, spec)
        return dict(zip(tokens, spec.labels.values() or HEAD_WEIGHTS, strict=True))

    def stamps_now(self) -> list[tuple[str, int, int]]:
        """Names, sizes and times of its files; `stamps` has them from before any was read."""
        files = [self.folder / name for name in CHECKPOINT_FILES]
        with suppress(OSError):
            files += sorted(self.folder.glob("*.safetensors"))
        stamps = []
        for file in files:
            with suppress(OSError):
                status = file.stat()
                stamps.append((file.name, status.st_size, status.st_mtime_ns))
        return stamps


class Inputs:
    """The inputs of every role of a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        """Nothing is read yet."""
        self.deployment = deployment
        self.roles = {role: EngineInputs(deployment, role) for role in deployment.roles()}

    @property
    def engines(self) -> dict[Role, EngineInputs]:
        """Inputs of the compiled engines, generator first."""
        return {role: self.roles[role] for role in self.deployment.engines()}

    def shapes(self) -> dict[Role, ModelConfig]:
        """The shape of each compiled engine; raises CheckpointError."""
        return {role: inputs.shape for role, inputs in self.engines.items()}

    def with_shapes(self) -> Iterator[EngineInputs]:
        """Inputs of the compiled engines whose shape is known."""
        return (inputs for inputs in self.engines.values() if inputs.has_shape())

    def fresh(self) -> Inputs:
        """These, or others if a file has changed since: whoever waited must not use old ones."""
        changed = any(each.stamps_now() != each.stamps for each in self.roles.values())
        return Inputs(self.deployment) if changed else self


def engine_shape(model: ModelConfig, spec: EngineSpec) -> ModelConfig:
    """The shape with the head that the engine is to have; raises CheckpointError for another."""
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
    own = model.head.kind if model.head else "labels"
    if spec.head not in (None, own):
        raise CheckpointError(
            f"verifier.head is {spec.head!r}, but {spec.checkpoint}/config.json names an "
            f"architecture with {judged_by(model, spec)}.",
            hint="Leave verifier.head out to take what the checkpoint says.",
        )
    if model.head and spec.labels != own_labels(spec.format):
        raise CheckpointError(
            f"verifier.labels are given, but {spec.checkpoint} judges by {model.head.text}.",
            hint="Remove verifier.labels from the deployment file.",
        )
    return model


def judged_by(model: ModelConfig, spec: RoleSpec) -> str:
    """What a verifier of this shape judges with, in words."""
    if model.head:
        return model.head.text
    return spec.facts.judged_by if isinstance(spec, VerifierRole) else READ_AT_LABELS


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
