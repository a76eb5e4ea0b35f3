"""What `tts doctor` sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Observation:
    """One thing that was looked at."""

    what: str
    state: State
    """note: doubtful, and no reason to stop. missing: target openvino does not run without it."""
    found: str
    advice: str = ""
