"""The progress that a long command reports. It never prints: the terminal's observers do."""

from __future__ import annotations

from tts.build.spec import Role
from tts.runs.run import Run
from tts.serving.server.triton_log import Loading
from tts.session.result import RunProgress


class Observer:
    """Follows one command, and shows nothing: those that show something override what they show.

    Every call comes from the thread that called the command, and must return quickly.
    """

    def say(self, line: str) -> None:
        """A stage begins: the server starts, the next run of a comparison, stopping."""

    def loading(self, loading: Loading) -> None:
        """What the engines of a starting server do; called twice a second."""

    def began(self, run: RunProgress, title: str) -> None:
        """A run begins; `run` is kept up to date until it has ended."""

    def changed(self) -> None:
        """The numbers may have changed; called about ten times a second while a run goes on."""

    def ended(self) -> None:
        """The run that began has ended, well or not."""

    def finished(self, run: Run) -> None:
        """A run is complete: its log has been read for its summary."""

    def measuring(self, role: Role, unit: str, measurements: int) -> None:
        """The measurements of an engine begin: this many at most, at loads in this unit."""

    def at(self, load: int, round_: int) -> None:
        """A measurement begins, at this load in flight; round 0 warms up and is discarded."""
