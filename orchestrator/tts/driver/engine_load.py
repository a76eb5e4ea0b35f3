"""How busy the engines are, and why an engine idles. Pure: times and states are arguments."""

from __future__ import annotations

from collections.abc import Callable

from tts.runs import events
from tts.runs.records import ENGINES, Engine


class IdleWatch:
    """Reports every period in which nothing was in flight on an engine."""

    def __init__(self, record: Callable[[events.Event], None]) -> None:
        """`record` takes an `Idle` event when a stretch ends, or its reason changes."""
        self._record = record
        self._idle: dict[Engine, tuple[float, str]] = {}

    def update(self, now: float, in_flight: tuple[int, int], pending: tuple[int, int]) -> None:
        """Take in what is in flight and pending on both engines as of `now`, generator first."""
        for place, engine in enumerate(ENGINES):
            why = None
            if not in_flight[place]:
                why = reason(pending[place], in_flight[1 - place])
            self._set(now, engine, why)

    def end(self, now: float) -> None:
        """End the run."""
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


def reason(pending: int, others: int) -> str:
    """Why an engine idles; `others`: requests in flight on the other engine."""
    if pending:
        return "budget"
    return "dependency" if others else "no work"
