"""`Deployment`: the whole file, what its target allows in it, and what it means on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, PrivateAttr, WrapValidator, model_validator

from tts.build.errors import ConfigError
from tts.build.server_kinds import ServerKind

from .engine import EngineSpec, Precision
from .execution import ExecutionSpec, TextVerifier, VerifierCommand
from .generator import GeneratorSpec
from .remote import RemoteGenerator, RemoteSpec, RemoteVerifier
from .role import Role, RoleSpec
from .section import Section, Target
from .server import Endpoint, ServerSpec
from .tensorrt import TensorRTSpec
from .verifier import SharedVerifier, VerifierFunction, VerifierRole, VerifierSpec

PRECISIONS: dict[Target, tuple[Precision, ...]] = {
    "openvino": ("fp32", "bf16", "int8"),
    "tensorrt": ("fp16", "bf16", "fp8", "int8", "int4_awq"),  # the last two: weights only
    "llmapi": ("fp16", "bf16"),  # as the checkpoint is loaded; quantised ones are not read yet
    "openai": (),  # whoever started the server has chosen one
}
ANSWER_TIMEOUT_S = 600.0
OPENVINO_BLOCK_SIZE = 32  # the only one of the CPU plug-in's paged attention


def _check_engine(target: Target, role: Role, engine: EngineSpec) -> None:
    allowed = PRECISIONS[target]
    if engine.precision not in allowed:
        raise ValueError(
            f"{role}.precision is {engine.precision!r}; target {target} allows {', '.join(allowed)}"
        )
    if target == "openvino":
        _check_openvino(role, engine)
    else:
        _check_tensorrt(role, engine)


def _check_tensorrt(role: Role, engine: EngineSpec) -> None:
    if engine.threads is not None:
        raise ValueError(f"{role}.threads applies to target openvino only; remove it")
    if engine.tensorrt and engine.tensorrt.kv_precision == "fp8" and engine.precision != "fp8":
        raise ValueError(
            f"{role}.tensorrt.kv_precision is 'fp8' with precision {engine.precision!r}; "
            "TensorRT-LLM then turns paged context attention off, and with it KV reuse: "
            "use precision fp8, or leave kv_precision at auto"
        )


def _check_openvino(role: Role, engine: EngineSpec) -> None:
    if engine.tensorrt is not None:
        raise ValueError(f"{role}.tensorrt is for targets tensorrt and llmapi; remove it")
    if engine.kv_cache.block_size != OPENVINO_BLOCK_SIZE:
        raise ValueError(
            f"{role}.kv_cache.block_size is {engine.kv_cache.block_size}; "
            f"target openvino allows {OPENVINO_BLOCK_SIZE}"
        )
    if engine.scheduling_policy != "guaranteed_no_evict":
        raise ValueError(
            f"{role}.scheduling_policy is {engine.scheduling_policy!r}; target openvino allows "
            "guaranteed_no_evict (preemption would make results depend on timing)"
        )


def _scalar(value: object) -> object:
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("must be a number, a text, true or false")
    return value


StrategyParameter = Annotated[Any, BeforeValidator(_scalar)]
"""A strategy's parameter; the orchestrator checks its value."""


Kinds = Sequence[tuple[str, type[Section]]]


def kind_of(section: Mapping[str, Any], kinds: Kinds) -> type[Section]:
    """The kind of a section, by the first of these fields that it has; empty: any."""
    return next(kind for field, kind in kinds if not field or section.get(field) is not None)


def _section(kinds: Kinds) -> WrapValidator:
    """A section of one of several kinds: its mistakes are explained as those of that kind."""

    def read(value: object, _: object) -> Section:
        if isinstance(value, tuple(kind for _, kind in kinds)):
            return cast(Section, value)
        return kind_of(value if isinstance(value, dict) else {}, kinds).model_validate(value)

    return WrapValidator(read)


GENERATORS: Kinds = (("url", RemoteGenerator), ("", GeneratorSpec))
"""Kinds of section `generator`."""
VERIFIERS: Kinds = (
    ("function", VerifierFunction),
    ("command", VerifierCommand),
    ("url", RemoteVerifier),
    ("same_as", SharedVerifier),
    ("", VerifierSpec),
)
"""Kinds of section `verifier`."""
_SHARED = ("url", "model", "api_key_env", "tokenizer", "checkpoint", "max_seq_len")
"""Fields that a verifier `same_as: generator` has from there."""


class Deployment(Section):
    """Both engines, their batching policies and the server."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Names its engines, server and default run folders."""
    target: Target
    """The target that engines are compiled for; `openai` if none is compiled."""
    generator: Annotated[GeneratorSpec | RemoteGenerator, _section(GENERATORS)]
    """The model that writes steps."""
    verifier: Annotated[
        VerifierSpec | RemoteVerifier | SharedVerifier | VerifierFunction | VerifierCommand,
        _section(VERIFIERS),
    ]
    """The process reward model that scores steps; or a Python function or a program that does."""
    execution: ExecutionSpec = ExecutionSpec()
    """How programs run that execute what the generator wrote."""
    server: ServerSpec = ServerSpec()
    """The server of the engines, and its addresses."""
    endpoints: tuple[Endpoint, ...] = ()
    """gRPC addresses (HOST:PORT) of servers on other machines; clients use all of them."""
    answer_timeout_s: Annotated[float, Field(strict=True, ge=1, le=1e6)] = ANSWER_TIMEOUT_S
    """A request fails once its server has answered nothing at all for so many seconds."""
    tensorrt: TensorRTSpec | None = None
    """GPU and container; required by targets tensorrt and llmapi."""
    strategies: dict[str, dict[str, StrategyParameter]] = Field(default={})
    """Defaults of strategy parameters, by strategy: `beam-search: {n: 16, beam_width: 4}`."""
    _named: str | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)

    def read_from(self, file: Path, named: str) -> Deployment:
        """The same deployment as read from `file`, which the user called `named`."""
        copy = self.model_copy()
        copy._folder, copy._named = file.parent, named
        return copy

    def served_by(self, kind: ServerKind | None) -> Deployment:
        """The same deployment on this kind of server; None: on its own."""
        if kind is None:
            return self
        return self.model_copy(update={"server": self.server.model_copy(update={"kind": kind})})

    @property
    def folder(self) -> Path | None:
        """Where its file lies and relative paths start; None if it was not read from a file."""
        return self._folder

    @property
    def named(self) -> str:
        """The argument that names this deployment on a command line: the file or the bundled
        name.
        """
        return shlex.quote(self._named or self.name)

    @model_validator(mode="before")
    @classmethod
    def _same_model(cls, data: Any) -> Any:
        """A verifier that is the generator's model has its address and tokenizer from there."""
        if not isinstance(data, dict):
            return data
        generator, verifier = data.get("generator"), data.get("verifier")
        if not (isinstance(generator, dict) and isinstance(verifier, dict)):
            return data
        if verifier.get("same_as") is None:
            return data
        shared = {name: generator[name] for name in _SHARED if name in generator}
        given = {name: verifier[name] for name in _SHARED if name in verifier}
        if other := [name for name in given if given[name] != shared.get(name)]:
            raise ValueError(
                f"verifier.same_as is {verifier['same_as']!r:.50}, so verifier.{other[0]} is the "
                "generator's: remove it"
            )
        return {**data, "verifier": {**verifier, **shared}}

    @model_validator(mode="after")
    def _paragraphs_are_read(self) -> Self:
        if self.generator.thinking.steps == "paragraphs" and self.verifier.reads_thinking == "none":
            raise ValueError(
                "generator.thinking.steps is paragraphs, whose scores need a verifier that reads "
                "them: set verifier.reads_thinking to all, or to a number of tokens, or steps to "
                "whole"
            )
        return self

    @model_validator(mode="after")
    def _fits_target(self) -> Self:
        target, tensorrt, engines = self.target, self.tensorrt, self.engines()
        if target == "openai":
            for role in engines:
                raise ValueError(
                    f"{role} has no url, so it is compiled: target openai is for deployments that "
                    "compile nothing; set target to openvino, tensorrt or llmapi, or give a url"
                )
        elif not engines:
            raise ValueError(f"no engine is compiled, so target must be openai, not {target}")
        elif target != "openvino" and len(engines) == 1 and not self.shares_engine:
            other = "an engine with a url" if self.remotes() else "a function or a command"
            raise ValueError(
                f"target is {target}: beside {other} one can be compiled for target openvino only, "
                "so far; serve it by itself, and give its url"
            )
        if self.endpoints and not engines:
            raise ValueError("endpoints are those of servers of compiled engines; name all in url")
        for role, engine in engines.items():
            _check_engine(target, role, engine)
        if target in ("openvino", "openai"):
            if tensorrt is not None:
                raise ValueError("the block tensorrt is for targets tensorrt and llmapi; remove it")
        elif tensorrt is None:
            raise ValueError(f"target {target} needs the block tensorrt, with the gpu to build for")
        if target == "llmapi" and "generator" in engines and self.generator.guided_decoding:
            raise ValueError(
                "generator.guided_decoding is for targets openvino and tensorrt: LLM(...) matches "
                "grammars against its own tokenizer, and it is opened without one "
                "(skip_tokenizer_init)"
            )
        if target == "llmapi" and tensorrt and tensorrt.launcher != "auto":
            raise ValueError(
                "tensorrt.launcher applies to target tensorrt only; LLM(...) starts its own ranks"
            )
        for role, engine in engines.items():
            if target == "llmapi" and len(engine.placement.replicas) > 1:
                raise ValueError(
                    f"{role}.tensorrt.gpus names {len(engine.placement.replicas)} replicas; an "
                    "engine of target llmapi is one process, with one replica"
                )
        return self

    def roles(self) -> dict[Role, RoleSpec]:
        """What the orchestrator needs of the models by role, generator first."""
        if isinstance(self.verifier, TextVerifier):
            return {"generator": self.generator}
        return {"generator": self.generator, "verifier": self.verifier}

    @property
    def shares_engine(self) -> bool:
        """Whether the generator's compiled engine is the verifier's as well."""
        return isinstance(self.verifier, SharedVerifier)

    @property
    def critiques(self) -> int:
        """How many critiques a score takes; 0: the verifier writes none."""
        verifier = self.verifier
        if isinstance(verifier, VerifierRole) and verifier.facts.writes:
            return verifier.critique.samples
        return 0

    def engines(self) -> dict[Role, EngineSpec]:
        """The compiled engines by role, generator first."""
        found = {role: spec for role, spec in self.roles().items() if isinstance(spec, EngineSpec)}
        if isinstance(self.generator, GeneratorSpec):
            shared = isinstance(self.verifier, SharedVerifier) and self.verifier.reads_logits
            found["generator"] = self.generator.judging(shared)
        return found

    @property
    def verifier_model(self) -> VerifierSpec | RemoteVerifier | SharedVerifier:
        """The verifier where it is a model; raises ConfigError where it is none."""
        if isinstance(self.verifier, TextVerifier):
            raise ConfigError(
                f"Deployment {self.name!r}: the verifier is {self.verifier.named}, and this "
                "needs one that is a model."
            )
        return self.verifier

    def compiled_pair(self) -> tuple[GeneratorSpec, VerifierSpec]:
        """Both engines for what has to know their weights, pools and batches.

        Raises ConfigError if one of them runs on a server of its own, or is no model.
        """
        generator, verifier = self.generator, self.verifier
        if isinstance(generator, GeneratorSpec) and isinstance(verifier, VerifierSpec):
            return generator, verifier
        others = [
            f"the {role} runs at {', '.join(remote.url)}" for role, remote in self.remotes().items()
        ]
        if isinstance(verifier, TextVerifier):
            others.append(f"the verifier is {verifier.named}")
        if self.shares_engine:
            others.append("the generator's engine is the verifier's as well")
        elsewhere = " and ".join(others)
        raise ConfigError(
            f"Deployment {self.name!r}: {elsewhere}, and this needs two compiled engines, whose "
            "weights, memory and batches are known.",
        )

    def remotes(self) -> dict[Role, RemoteSpec]:
        """The engines that run on servers of their own by role, generator first."""
        return {role: spec for role, spec in self.roles().items() if isinstance(spec, RemoteSpec)}
