"""The command line of a started engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..spec import Deployment, Role


@dataclass(frozen=True)
class Command:
    """A program and its arguments, without a shell, and what its environment has besides."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def command_of(
    deployment: Deployment,
    role: Role,
    port: int,
    *,
    host: str = "127.0.0.1",
    api_key: str | None = None,
) -> Command:
    """What starts the engine of a role so that it listens on `host` and `port`.

    `argv[0]` is the engine's program, also within its image. `api_key` is in the environment, never
    among the arguments; engines that take none are started without. Raises ConfigError for a model
    that does not fit, and for what the engine cannot do.
    """
    raise NotImplementedError
