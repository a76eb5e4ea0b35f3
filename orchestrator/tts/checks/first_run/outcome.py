"""What a step of a first run came to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong", "not here"]

AS_EXPECTED, DIFFERS, NOT_HERE = 0, 1, 3
"""Exit codes of a first run; 2 is a wrong option or file, as everywhere."""


@dataclass(frozen=True)
class Outcome:
    """One thing that was looked at or done."""

    what: str
    state: State
    """note: doubtful, and no reason to stop. not here: it cannot be done or seen here."""
    expected: str
    found: str
    advice: str = ""


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """1 if anything is wrong, else 3 if not everything could be done here, else 0."""
    states = {outcome.state for outcome in outcomes}
    return DIFFERS if "wrong" in states else NOT_HERE if "not here" in states else AS_EXPECTED
