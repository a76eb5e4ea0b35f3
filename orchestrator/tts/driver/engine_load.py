"""How busy the engines are, and why one has nothing to do. Pure: times and states are given."""

from __future__ import annotations

from collections.abc import Callable

from tts.runs import events
from tts.runs.records import ENGINES, Engine


class IdleWatch:
    """Reports every stretch of time in which nothing was in flight on an engine."""

    def __init__(self, record: Callable[[events.Event], None]) -> None:
        """`record` takes an `Idle` event when a stretch ends, or its reason changes."""
        self._record = record
        self._idle: dict[Engine, tuple[float, str]] = {}

    def update(self, now: float, in_flight: tuple[int, int], pending: tuple[int, int]) -> None:
        """Take in what is in flight and pending on both engines from `now` on, generator first."""
        for place, engine in enumerate(ENGINES):
            why = None
            if not in_flight[place]:
                why = reason(pending[place], in_flight[1 - place])
            self._set(now, engine, why)

    def end(self, now: float) -> None:
        """The run is over."""
        for engine in ENGINES:
            self._set(now, engine, None)

    def _set(self, now: float, engine: Engine, why: str | None) -> None:
        since, before = self._idle.get(engine, (now, None))
        if why == before:
            return
        if before is not None and since < now:
            self._record(events.Idle(t=now, engine=engine, since=since, until=now, why=before))
        if why is None:
            self._idle.pop(engine, None)
        else:
            self._idle[engine] = (now, why)


class Load:
    """Requests in flight on an engine, averaged over any stretch of time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._in_flight = 0
        self._sum = 0.0

    def update(self, now: float, in_flight: int) -> float:
        """Take in how many are in flight from `now` on; the integral so far, in request-seconds."""
        self._sum += self._in_flight * (now - self._now)
        self._now, self._in_flight = now, in_flight
        return self._sum


def reason(pending: int, others: int) -> str:
    """Why an engine with nothing in flight idles; `others`: what the other one has in flight."""
    if pending:
        return "budget"
    return "dependency" if others else "no work"
