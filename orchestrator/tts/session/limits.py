"""What one problem may take before its search is ended with the best answer so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Limits of each problem by itself; None: no limit."""

    budget_tokens: int | None = None
    """Generated tokens that its tree may hold. Exact: see `tts.search.budget`."""
    deadline_s: float | None = None
    """Seconds from the start of its search. What is there by then depends on the time it takes."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Limits:
        """The limits that run.json or group.json names; older ones have none."""
        return cls(**config.get("limits", {}))

    def to_config(self) -> dict[str, Any]:
        """As run.json keeps them: those that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}
