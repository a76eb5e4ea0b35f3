"""Things that only the process that opened them may use: a fork has none of its threads.

A session, a grader and gRPC connections need their threads; in a fork they would hang or disturb
those of the parent.
"""

from __future__ import annotations

import os

from .errors import ForkError


class Owner:
    """The process in which something was opened."""

    def __init__(self, what: str) -> None:
        """`what` it is, as the subject of a sentence."""
        self._what = what
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and not a fork of it."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raise ForkError in a fork."""
        if not self.is_here:
            raise ForkError(
                f"{self._what} was opened in process {self._pid}, and cannot be used in process "
                f"{os.getpid()}, a fork of it, which has none of its threads.",
                hint="Open one in each process, and start these with "
                'multiprocessing.get_context("spawn").',
            )


_FIRST: dict[str, Owner] = {}


def require_unforked(library: str) -> None:
    """Raise ForkError for a library that a parent of this process has already used."""
    _FIRST.setdefault(library, Owner(library)).require()
