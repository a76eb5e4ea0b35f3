"""What is seen of a machine, or of a first run on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "missing", "wrong", "not here"]


@dataclass(frozen=True)
class Observation:
    """One thing that was looked at or done, and what was expected of it."""

    what: str
    state: State
    """note: doubtful, and no reason to stop. missing: target openvino does not run without it.
    wrong: other than expected. not here: it cannot be done or seen on this machine."""
    found: str
    advice: str = ""
    expected: str = ""
