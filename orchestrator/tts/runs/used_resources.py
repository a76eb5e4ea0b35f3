"""What the run's own machine gave: processor time of the orchestrator, energy of its GPUs."""

from __future__ import annotations

from .events import Resources


class UsedResources:
    """Adds up sessions, of which the last word counts: each says what it has used so far."""

    def __init__(self) -> None:
        self._sessions: list[Resources | None] = []

    def new_session(self) -> None:
        """Counters begin at 0 again."""
        self._sessions.append(None)

    def add(self, event: Resources) -> None:
        """What the session has used by now."""
        if not self._sessions:
            self._sessions.append(None)
        self._sessions[-1] = event

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds, of all sessions that say it; None if none does."""
        said = self._said
        return sum(event.cpu_s for event in said) if said else None

    @property
    def cpu_share(self) -> float | None:
        """The same over those sessions' time: 1.0 is one processor, always busy."""
        seconds = sum(event.t for event in self._said)
        return (self.cpu_s or 0.0) / seconds if seconds else None

    @property
    def energy_j(self) -> float | None:
        """Joules of all GPUs of the machine; None where NVML told nothing."""
        told = [event.energy_j for event in self._said if event.energy_j]
        return sum(sum(by_gpu.values()) for by_gpu in told) if told else None

    @property
    def _said(self) -> list[Resources]:
        return [event for event in self._sessions if event is not None]
