"""`Deployment`: the whole file, what its target allows in it, and what it means on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, cast, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, StrictBool, WrapValidator, model_validator

from tts.base.choices import PRECISIONS, STARTED, Role, ServerKind, Target
from tts.base.errors import ConfigError

from .engine import EngineSpec, Gpu, TensorRTSpec
from .generator import GeneratorSpec
from .section import RoleSpec, Section
from .served import (
    SHARED_FIELDS,
    RemoteGenerator,
    RemoteSpec,
    RemoteVerifier,
    StartedGenerator,
    StartedSpec,
    StartedVerifier,
)
from .server import Endpoint, ServerSpec
from .text_verifier import ExecutionSpec, TextVerifier, VerifierCommand, VerifierFunction
from .verifier import SharedVerifier, VerifierRole, VerifierSpec

DETERMINISTIC: tuple[Target, ...] = ("vllm", "sglang")
"""Targets whose outputs can be made independent of the batch."""
ANSWER_TIMEOUT_S = 600.0
OPENVINO_BLOCK_SIZE = 32  # the only one of the CPU plug-in's paged attention


def _check_engine(target: Target, role: Role, engine: EngineSpec) -> None:
    allowed = PRECISIONS[target]
    if engine.precision not in allowed:
        raise ValueError(
            f"{role}.precision is {engine.precision!r}; target {target} allows {', '.join(allowed)}"
        )
    if target != "openvino":
        if engine.threads is not None:
            raise ValueError(f"{role}.threads applies to target openvino only; remove it")
        if engine.tensorrt and engine.tensorrt.kv_precision == "fp8" and engine.precision != "fp8":
            raise ValueError(
                f"{role}.tensorrt.kv_precision is 'fp8' with precision {engine.precision!r}; "
                "TensorRT-LLM then turns paged context attention off, and with it KV reuse: "
                "use precision fp8, or leave kv_precision at auto"
            )
        return
    if engine.tensorrt is not None:
        raise ValueError(f"{role}.tensorrt is for target tensorrt; remove it")
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


GENERATORS: Kinds = (("url", RemoteGenerator), ("target", StartedGenerator), ("", GeneratorSpec))
"""Kinds of section `generator`."""
VERIFIERS: Kinds = (
    ("function", VerifierFunction),
    ("command", VerifierCommand),
    ("url", RemoteVerifier),
    ("target", StartedVerifier),
    ("same_as", SharedVerifier),
    ("", VerifierSpec),
)
"""Kinds of section `verifier`."""
_SHARED = ("url", "model", "api_key_env", *SHARED_FIELDS)
"""Fields that a verifier `same_as: generator` has from there."""


def with_targets(data: Any) -> Any:
    """The mapping of a deployment file with the started engine of each role in its own section.

    `target` of the file then is that of the engines that are compiled, if there are any.
    """
    if not isinstance(data, dict):
        return data
    compiled, update = [], {}
    for role in get_args(Role):
        section = data.get(role)
        if not isinstance(section, dict):
            continue
        if any(section.get(field) is not None for field in ("url", "function", "command")):
            continue
        own = section.get("target") or data.get("target")
        rest = {name: value for name, value in section.items() if name != "target"}
        if own in STARTED and not (role == "verifier" and section.get("same_as")):
            update[role] = {"target": own, **rest}
        elif own in get_args(Target) and own not in STARTED:
            compiled.append(own)
            update[role] = rest
    if len(set(compiled)) > 1:
        raise ValueError(
            f"the generator's target is {compiled[0]} and the verifier's {compiled[1]}; engines "
            "that are compiled need the same"
        )
    return data | update | ({"target": compiled[0]} if compiled else {})


class Deployment(Section):
    """Both engines, their batching policies and the server."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Names its engines, server and default run folders."""
    target: Target
    """What runs the models, unless a section names another: openvino and tensorrt are compiled;
    vllm, sglang, llama.cpp and trtllm-serve are started; openai runs already, at a `url`."""
    generator: Annotated[GeneratorSpec | RemoteGenerator | StartedGenerator, _section(GENERATORS)]
    """The model that writes steps."""
    verifier: Annotated[
        VerifierSpec
        | RemoteVerifier
        | StartedVerifier
        | SharedVerifier
        | VerifierFunction
        | VerifierCommand,
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
    """GPU and container; required by target tensorrt."""
    gpu: Gpu | None = None
    """The kind of GPU of started engines; unset: they run on CPUs."""
    deterministic: StrictBool = False
    """Start engines so that an output does not depend on what is computed beside it (vllm, sglang):
    trees repeat under every schedule, at the price of speed."""
    mps: StrictBool = False
    """Run NVIDIA's MPS daemon beside started engines that share a GPU."""
    strategies: dict[str, dict[str, StrategyParameter]] = Field(default={})
    """Defaults of strategy parameters, by strategy: `beam-search: {n: 16, beam_width: 4}`."""
    _argument: str | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)

    def read_from(self, file: Path, argument: str) -> Deployment:
        """A copy that knows its `file`, which a command line names by `argument`."""
        copy = self.model_copy()
        copy._folder, copy._argument = file.parent, argument
        return copy

    def served_by(self, kind: ServerKind | None) -> Deployment:
        """The deployment on a kind of server; None: on its own."""
        if kind is None:
            return self
        return self.model_copy(update={"server": self.server.model_copy(update={"kind": kind})})

    @property
    def folder(self) -> Path | None:
        """Where its file lies and relative paths start; None if it was not read from a file."""
        return self._folder

    @property
    def argument(self) -> str:
        """What names this deployment on a command line: the file or the bundled name."""
        return shlex.quote(self._argument or self.name)

    @model_validator(mode="before")
    @classmethod
    def _same_model(cls, data: Any) -> Any:
        """A verifier that is the generator's model has its address and tokenizer from there."""
        data = with_targets(data)
        if not isinstance(data, dict):
            return data
        generator, verifier = data.get("generator"), data.get("verifier")
        if not (isinstance(generator, dict) and isinstance(verifier, dict)):
            return data
        if verifier.get("same_as") is None:
            return data
        shared = {name: generator[name] for name in _SHARED if name in generator}
        own = {name: verifier[name] for name in _SHARED if name in verifier}
        if other := [name for name in own if own[name] != shared.get(name)]:
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
                    "compile nothing; set target to what runs it, such as vllm, or give a url"
                )
        elif not engines and not self.started():
            raise ValueError(f"no engine is compiled here, so target must be openai, not {target}")
        elif target != "openvino" and len(engines) == 1 and not self.shares_engine:
            other = "an engine with a url" if self.remotes() else "a function or a command"
            other = "an engine that is started" if self.started() else other
            raise ValueError(
                f"target is {target}: beside {other} one can be compiled for target openvino only, "
                "so far; serve it by itself, and give its url"
            )
        if self.endpoints and not engines:
            raise ValueError("endpoints are those of servers of compiled engines; name all in url")
        for role, engine in engines.items():
            _check_engine(target, role, engine)
        if target in ("openvino", "openai", *STARTED):
            if tensorrt is not None:
                raise ValueError("the block tensorrt is for target tensorrt; remove it")
        elif tensorrt is None:
            raise ValueError(f"target {target} needs the block tensorrt, with the gpu to build for")
        return self

    @model_validator(mode="after")
    def _can_be_started(self) -> Self:
        started = self.started()
        for field in ("gpu", "deterministic", "mps"):
            if getattr(self, field) and not started:
                raise ValueError(f"{field} is for engines that are started; remove it")
        for role, spec in started.items():
            precisions = PRECISIONS[spec.target]
            if spec.precision not in ("auto", *precisions):
                raise ValueError(
                    f"{role}.precision is {spec.precision!r}; target {spec.target} allows "
                    f"{', '.join(('auto', *precisions))}"
                )
            if self.deterministic and spec.target not in DETERMINISTIC:
                raise ValueError(
                    f"deterministic is true, but {role}'s target {spec.target} has no such mode; "
                    f"those that have: {', '.join(DETERMINISTIC)}"
                )
            field = "tensor_parallel" if spec.tensor_parallel > 1 else "gpus"
            if self.gpu is None and (spec.gpus or spec.tensor_parallel > 1):
                raise ValueError(
                    f"{role}.{field} is given, but the deployment names no gpu: add one, such as "
                    "gpu: h100, or remove it"
                )
        ports = [spec.port for spec in started.values() if spec.port != "auto"]
        if len(set(ports)) < len(ports):
            raise ValueError(f"generator and verifier have the same port, {ports[0]}")
        return self

    @property
    def tensorrt_block(self) -> TensorRTSpec:
        """The block tensorrt, which a deployment of target tensorrt has."""
        assert self.tensorrt is not None
        return self.tensorrt

    def roles(self) -> dict[Role, RoleSpec]:
        """What the orchestrator needs of the models by role, generator first."""
        if isinstance(self.verifier, TextVerifier):
            return {"generator": self.generator}
        return {"generator": self.generator, "verifier": self.verifier}

    @property
    def shares_engine(self) -> bool:
        """Whether the generator's compiled engine is the verifier's as well."""
        return isinstance(self.verifier, SharedVerifier)

    def started(self) -> dict[Role, StartedSpec]:
        """The engines to start by role, generator first; one for both roles is the generator's."""
        return {
            role: spec
            for role, spec in self.roles().items()
            if isinstance(spec, StartedSpec) and getattr(spec, "same_as", None) is None
        }

    @property
    def critiques(self) -> int:
        """How many critiques a score takes; 0: the verifier writes none."""
        verifier = self.verifier
        if isinstance(verifier, VerifierRole) and verifier.facts.writes:
            return verifier.critique.samples
        return 0

    def engines(self) -> dict[Role, EngineSpec]:
        """The compiled engines by role, generator first."""
        engines = {
            role: spec for role, spec in self.roles().items() if isinstance(spec, EngineSpec)
        }
        if isinstance(self.generator, GeneratorSpec):
            shared = isinstance(self.verifier, SharedVerifier) and self.verifier.reads_logits
            engines["generator"] = self.generator.judging(shared)
        return engines

    @property
    def verifier_model(self) -> VerifierSpec | RemoteVerifier | StartedVerifier | SharedVerifier:
        """The verifier where it is a model; raises ConfigError where it is none."""
        if isinstance(self.verifier, TextVerifier):
            raise ConfigError(
                f"Deployment {self.name!r}: the verifier is {self.verifier.title}, and this "
                "needs one that is a model."
            )
        return self.verifier

    def compiled_pair(self) -> tuple[GeneratorSpec, VerifierSpec]:
        """Both compiled engines; raises ConfigError where one is served elsewhere, or no model."""
        generator, verifier = self.generator, self.verifier
        if isinstance(generator, GeneratorSpec) and isinstance(verifier, VerifierSpec):
            return generator, verifier
        others = [
            f"the {role} runs at {', '.join(remote.url)}" for role, remote in self.remotes().items()
        ]
        others += [
            f"the {role} is started by {each.target}" for role, each in self.started().items()
        ]
        if isinstance(verifier, TextVerifier):
            others.append(f"the verifier is {verifier.title}")
        if self.shares_engine:
            others.append("the generator's engine is the verifier's as well")
        elsewhere = " and ".join(others)
        raise ConfigError(
            f"Deployment {self.name!r}: {elsewhere}, and this needs two compiled engines, whose "
            "weights, memory and batches are known."
        )

    @property
    def consecutive_seeds(self) -> bool:
        """Whether the seeds of siblings count up: a server by HTTP may draw them in one request."""
        return isinstance(self.generator, RemoteSpec | StartedSpec)

    def remotes(self) -> dict[Role, RemoteSpec]:
        """The engines that run on servers of their own by role, generator first."""
        return {role: spec for role, spec in self.roles().items() if isinstance(spec, RemoteSpec)}
