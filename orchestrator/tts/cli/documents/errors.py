"""What a command that fails prints with `--json`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a command failed."""

    kind: str
    """The error's name (docs/reference/exit-codes.md); UsageError: the command line is wrong."""
    message: str
    """A sentence: the mistake, and its place."""
    hint: str | None = None
    """What to do about it."""
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """An error. A sentence on stderr says the same."""

    error: Failure
