"""`Service`: what is started, found, watched and stopped as one server of a deployment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import psutil

from tts.base.errors import ServerError
from tts.build.spec import Deployment, Role

from ..command import guard
from ..command.ports import Addresses
from ..command.server_command import ServerCommand
from .state import ProcessIdentity, ServerState
from .triton_log import Loading

CommandAt = Callable[[Addresses | None], ServerCommand]
"""Makes the command of one attempt to start, at these addresses or at new ones."""


class Service(ABC):
    """One server of a deployment: its command, and what its log and its answers mean.

    The life of its processes is the same for all (`start`, `lookup`, `supervise`).
    """

    def __init__(
        self, deployment: Deployment, title: str, roles: Collection[Role], folder: Path, log: str
    ) -> None:
        """`title` is its name in messages, `roles` are those that it serves."""
        self.deployment = deployment
        self.title = title
        self.roles = roles
        self.folder = folder
        """Its log, its state and its locks."""
        self.log = folder / log
        self.state_file = folder / guard.STATE

    @property
    @abstractmethod
    def digest(self) -> str:
        """The digest of what it serves: a server of another one has to be started again."""

    @abstractmethod
    def prepare(self, say: Callable[[str], None]) -> tuple[dict[str, str], CommandAt]:
        """The environment of the guard and the commands of a start, once all they need is there.

        Raises a TtsError naming what is missing.
        """

    @abstractmethod
    def planned_command(self) -> ServerCommand:
        """The command of a start now, for people to read; no secret stands in it."""

    @abstractmethod
    def answers(self, addresses: Addresses) -> bool:
        """Whether it says at these addresses that it is ready."""

    def confirm(self, addresses: Addresses, timeout_s: float = 30.0) -> None:  # noqa: B027
        """Raise ServerError if a real request to a server that says it is ready fails."""

    @abstractmethod
    def loading(self, seconds: float) -> Loading:
        """Its progress so many seconds after its launch, by its log."""

    @abstractmethod
    def failure(self, status: int) -> ServerError:
        """Why it stopped, by its log and its exit status."""

    @abstractmethod
    def where(self, addresses: Addresses) -> str:
        """Its address in messages."""

    def external(self) -> ServerState | None:
        """A server of somebody else that stands for it; raises ServerError if it cannot."""
        return None

    def parts(self, server: psutil.Process) -> Mapping[ProcessIdentity, str]:
        """Processes that must live besides the server's own, with names for messages."""
        return {}
