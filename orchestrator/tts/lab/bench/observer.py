"""What a benchmark tells whoever watches it. It never prints: the terminal's observer does."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tts.serving.server.loading import Loading
from tts.session.progress import RunProgress


class Observer(Protocol):
    """Follows one command: lines that are said, and runs that begin, go on and end, one by one.

    Every call comes from the thread that called the benchmark, and must return quickly.
    """

    def say(self, line: str) -> None:
        """A stage begins: the server starts, the next run of a comparison, stopping."""

    def loading(self, loading: Loading) -> None:
        """What the engines of a starting server do; called twice a second."""

    def began(self, run: RunProgress, title: str, folder: Path) -> None:
        """A run begins in its folder; `run` is kept up to date until it has ended."""

    def changed(self) -> None:
        """The numbers may have changed; called about ten times a second while a run goes on."""

    def ended(self) -> None:
        """The run that began has ended, well or not."""


class Silent:
    """An observer that shows nothing."""

    def say(self, line: str) -> None:
        """See Observer."""

    def loading(self, loading: Loading) -> None:
        """See Observer."""

    def began(self, run: RunProgress, title: str, folder: Path) -> None:
        """See Observer."""

    def changed(self) -> None:
        """See Observer."""

    def ended(self) -> None:
        """See Observer."""
