"""What was in flight over time, in one pass over a log of any length."""

from __future__ import annotations

from .records import ENGINES, Engine, RequestRecord


class LoadOverTime:
    """The mean load in flight in each of equal stretches of time, of which there are never many.

    Where time goes beyond the last stretch, neighbours are joined and all become twice as wide:
    the integrals of joined stretches add up, so nothing is lost but resolution.
    """

    def __init__(self, stretches: int = 256, width_s: float = 1e-3) -> None:
        """`stretches`: how many at most, an even number; `width_s`: how wide they are at first."""
        self.width_s = width_s
        """Seconds in a stretch, by now."""
        self._integrals = [0.0] * stretches

    def add(self, sent: float, done: float, load: float) -> None:
        """Something of this load was in flight from `sent` to `done`."""
        while done > self.width_s * len(self._integrals):
            self._join()
        place = int(sent / self.width_s)
        while place < len(self._integrals):
            begin, end = place * self.width_s, (place + 1) * self.width_s
            self._integrals[place] += load * max(0.0, min(done, end) - max(sent, begin))
            if end >= done:
                return
            place += 1

    def means(self, wall_s: float) -> list[float]:
        """The mean load of each stretch of a run that took `wall_s`; the last one may be cut."""
        found = []
        for place, integral in enumerate(self._integrals):
            begin = place * self.width_s
            if begin >= wall_s:
                break
            found.append(integral / min(self.width_s, wall_s - begin))
        return found

    @property
    def total(self) -> float:
        """Load times seconds, of everything."""
        return sum(self._integrals)

    def _join(self) -> None:
        pairs = zip(self._integrals[::2], self._integrals[1::2], strict=True)
        joined = [one + other for one, other in pairs]
        self._integrals = joined + [0.0] * (len(self._integrals) - len(joined))
        self.width_s *= 2


class InFlight:
    """What was in flight on both engines: requests on the generator, prompt tokens on the verifier.

    The integral over time is that of the requests' durations (Little's law).
    """

    def __init__(self) -> None:
        self.over_time: dict[Engine, LoadOverTime] = {engine: LoadOverTime() for engine in ENGINES}

    def add(self, request: RequestRecord) -> None:
        """Take in a request that is over."""
        self.over_time[request.engine].add(request.sent, request.done, request.load)

    def mean(self, engine: Engine, wall_s: float) -> float | None:
        """Mean load over the wall time; None without any."""
        return self.over_time[engine].total / wall_s if wall_s else None
