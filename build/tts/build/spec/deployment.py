"""`Deployment`: the whole file, and what it means on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from tts.compat import Self

from .engine import EngineSpec, Role
from .generator import GeneratorSpec
from .section import Section, Target
from .server import PORT_STEP, Endpoint, ServerKind, ServerSpec
from .target_rules import check_target
from .tensorrt import TensorRTSpec
from .verifier import VerifierSpec


def _scalar(value: object) -> object:
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("must be a number, a text, true or false")
    return value


Parameter = Annotated[Any, BeforeValidator(_scalar)]
"""A strategy's parameter; the orchestrator checks its value."""


class Deployment(Section):
    """Both engines, their batching policies, the server. The one thing a user edits."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    target: Target
    generator: GeneratorSpec
    verifier: VerifierSpec
    server: ServerSpec = ServerSpec()
    endpoints: tuple[Endpoint, ...] = ()
    """Where it is served, if by others than this machine: every client uses all of them."""
    tensorrt: TensorRTSpec | None = None
    """GPU and container (targets tensorrt and llmapi, which require it)."""
    strategies: dict[str, dict[str, Parameter]] = Field(default={})
    """Strategy -> parameter -> value: defaults of searches on this deployment, not of engines."""
    _named: str | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)
    _replica: int = PrivateAttr(default=1)

    def read_from(self, file: Path, named: str) -> Deployment:
        """The same deployment as read from `file`, which the user called `named`."""
        copy = self.model_copy()
        copy._folder, copy._named = file.parent, named
        return copy

    def replica(self, number: int) -> Deployment:
        """The same deployment as its `number`th server on this machine, counted from 1.

        It has files and a socket of its own; given ports are PORT_STEP further for each.
        """
        shift = PORT_STEP * (number - self._replica)
        ports = {
            name: port + shift
            for name in ("grpc_port", "http_port", "metrics_port")
            if isinstance(port := getattr(self.server, name), int)
        }
        copy = self.model_copy(update={"server": self.server.model_copy(update=ports)})
        copy._replica = number
        return copy

    def served_by(self, kind: ServerKind) -> Deployment:
        """The same deployment on this kind of server."""
        return self.model_copy(update={"server": self.server.model_copy(update={"kind": kind})})

    @property
    def number(self) -> int:
        """Which replica it is, counted from 1."""
        return self._replica

    @property
    def server_name(self) -> str:
        """What its server's files are named for: `demo`, and `demo@2` of the second replica."""
        return self.name if self._replica == 1 else f"{self.name}@{self._replica}"

    @property
    def folder(self) -> Path | None:
        """Where its file lies and relative paths start; None if it was not read from a file."""
        return self._folder

    @property
    def named(self) -> str:
        """What commands are given to mean this deployment: the file or the bundled name."""
        return shlex.quote(self._named or self.name)

    @model_validator(mode="after")
    def _fits_target(self) -> Self:
        check_target(self.target, self.generator, self.verifier, self.tensorrt)
        return self

    def engines(self) -> dict[Role, EngineSpec]:
        """Both engine specs by role, generator first."""
        return {"generator": self.generator, "verifier": self.verifier}
