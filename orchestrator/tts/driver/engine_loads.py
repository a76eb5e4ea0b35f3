"""How much is in flight on the engines: their mean load, and when and why one idles."""

from __future__ import annotations

from tts.build.spec import ROLES, Role

from .records import IdleEngine, TakeRecord


class IdleWatch:
    """Reports every period in which nothing was in flight on an engine."""

    def __init__(self, record: TakeRecord) -> None:
        """`record` takes an `IdleEngine` when a stretch ends, or its reason changes."""
        self._record = record
        self._idle: dict[Role, tuple[float, str]] = {}

    def update(self, now: float, in_flight: tuple[int, int], pending: tuple[int, int]) -> None:
        """Take in what is in flight and pending on both engines as of `now`, generator first."""
        for place, engine in enumerate(ROLES):
            why = None
            if not in_flight[place]:
                why = _reason(pending[place], in_flight[1 - place])
            if engine in self._idle and self._idle[engine][1] != why:
                self._report(engine, now)
            if why:
                self._idle.setdefault(engine, (now, why))

    def end(self, now: float) -> None:
        """Report the stretches that last until the end of the run."""
        for engine in list(self._idle):
            self._report(engine, now)

    def _report(self, engine: Role, now: float) -> None:
        since, why = self._idle.pop(engine)
        if since < now:
            self._record(IdleEngine(engine, since, now, why))


class MeanLoad:
    """Requests in flight on an engine, averaged over any period."""

    def __init__(self) -> None:
        self._now = 0.0
        self._in_flight = 0
        self._sum = 0.0

    def update(self, now: float, in_flight: int) -> float:
        """Take in how many are in flight as of `now`; returns request-seconds so far."""
        self._sum += self._in_flight * (now - self._now)
        self._now, self._in_flight = now, in_flight
        return self._sum


def _reason(pending: int, others: int) -> str:
    """Why an engine idles; `others`: requests in flight on the other engine."""
    if pending:
        return "budget"
    return "dependency" if others else "no work"
