"""The form of what a check finds wrong in a deployment or in what was made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    what: str
    where: str
    """File, and place in it."""
    why: str
    """Why it matters."""
    fix: str
    """What to do about it."""
    severity: Literal["error", "warning", "note"] = "error"
    """A note says what could not be checked."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.why}). {self.fix}"
