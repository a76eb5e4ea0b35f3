"""What a measurement tells whoever watches it. It never prints: the terminal's observer does."""

from __future__ import annotations

from typing import Protocol

from tts.build.spec import Role
from tts.serving.server.loading import Loading


class Observer(Protocol):
    """Follows one `tune`: perhaps a recording, then the measurements of both engines."""

    def say(self, line: str) -> None:
        """A stage begins, in words."""

    def loading(self, loading: Loading) -> None:
        """What the engines of a starting server do; called twice a second."""

    def recording(self, problems: int) -> None:
        """A run of so many problems begins, whose requests are measured afterwards."""

    def solved(self) -> None:
        """One more problem of that run is solved."""

    def measuring(self, role: Role, measurements: int) -> None:
        """The measurements of an engine begin: so many at most."""

    def at(self, load: int, round_: int) -> None:
        """A measurement begins, at this load in flight; round 0 warms up and is discarded."""
