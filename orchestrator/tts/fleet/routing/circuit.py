"""A circuit breaker, with the times given by the caller (Nygard, Release It!, 2007).

closed ──failures in a row──► open ──wait_s──► half-open ──failure──► open, for twice as long
   ▲                            │                  │
   └──────────success───────────┴──────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CircuitState = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a circuit opens, and for how long."""

    failures: int = 3
    """Number of failures in a row that open it."""
    wait_s: float = 1.0
    """Seconds until it is tried again; they double with each trial that fails."""
    longest_wait_s: float = 30.0

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.wait_s <= self.longest_wait_s:
            raise ValueError(f"{self} makes no sense: failures from 1, 0 < wait_s <= longest.")


@dataclass(frozen=True, slots=True)
class Circuit:
    """The record of one replica's failures. A value: each event makes another."""

    breaker: Breaker = Breaker()
    failures: int = 0
    """Number of failures in a row, while it is closed."""
    retry_at: float | None = None
    """The time from which on it may be tried again; None: it is closed."""
    wait_s: float = 0.0
    """Seconds for which it was opened."""

    def state(self, now: float) -> CircuitState:
        """The state at a time in seconds, on the clock of all calls."""
        if self.retry_at is None:
            return "closed"
        return "half-open" if now >= self.retry_at else "open"

    def succeeded(self) -> Circuit:
        """The record after an answer: whatever was thought of it, it works."""
        return Circuit(self.breaker)

    def failed(self, now: float) -> Circuit:
        """The record after a failure; old work on an open circuit says nothing new."""
        match self.state(now):
            case "open":
                return self
            case "half-open":
                return self._opened(now, min(2 * self.wait_s, self.breaker.longest_wait_s))
        if self.failures + 1 < self.breaker.failures:
            return Circuit(self.breaker, self.failures + 1)
        return self._opened(now, self.breaker.wait_s)

    def tripped(self, now: float) -> Circuit:
        """The record of a dead server, as when its process has ended: open at once."""
        return self._opened(now, self.breaker.wait_s) if self.retry_at is None else self.failed(now)

    def _opened(self, now: float, wait_s: float) -> Circuit:
        return Circuit(self.breaker, retry_at=now + wait_s, wait_s=wait_s)
