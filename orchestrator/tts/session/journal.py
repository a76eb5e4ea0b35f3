"""Where the events of a session's drivers go: they are counted, and with a log written there."""

from __future__ import annotations

import asyncio
import time

import msgspec

from tts.build.errors import TtsError
from tts.runs.events import Event, Generated, Idle, ProblemStarted, Request, Scored
from tts.runs.log import RunLog
from tts.runs.resume import ResumedWork

from .outcome import Outcome
from .usage import Meter


class Journal:
    """One for all drivers of a solver, whose events it brings into one log."""

    def __init__(self, log: RunLog | None, meter: Meter) -> None:
        self.meter = meter
        self.clock = log.clock if log else time.monotonic
        self._log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._known: dict[str, ResumedWork] = {}
        self._kept: set[str] = set()
        """Problems of which everything that is answered is kept, as they may move."""
        self._started: set[str] = set()
        """Of those, the ones whose start is recorded."""

    def begin(self, problem: str, resumed: ResumedWork, *, keep: bool) -> None:
        """A problem is to be solved of which so much is known; `keep` what is learned of it."""
        self._known[problem] = resumed
        if keep:
            self._kept.add(problem)

    def known(self, problem: str) -> ResumedWork:
        """What is known of a problem that has begun, as it is now."""
        known = self._known[problem]
        if problem in self._kept:
            return ResumedWork(dict(known.thoughts), dict(known.scores))
        return known

    def end(self, problem: str) -> None:
        """A problem is solved, or given up: forget it."""
        self.meter.forget(problem)
        self._known.pop(problem, None)
        self._kept.discard(problem)
        self._started.discard(problem)

    def record(self, event: Event) -> None:
        """Take one event; a log that cannot be written ends the run, not this call."""
        self.meter.add(event)
        if self._log and not self._failure.done():
            try:
                self._log.write(event)
            except TtsError as error:
                self._failure.set_exception(error)
                self._failure.exception()  # seen, whether or not somebody watches

    def record_of(self, server: str, event: Event) -> None:
        """Take one event of one of several servers; a problem that moves starts once."""
        match event:
            case ProblemStarted():
                if event.problem in self._started:
                    return
                if event.problem in self._kept:
                    self._started.add(event.problem)
            case Generated() | Scored():
                if event.problem in self._kept:
                    self._known[event.problem].learn(event)
        if isinstance(event, Request | Scored | Idle) and server:
            event = msgspec.structs.replace(event, server=server)
        self.record(event)

    def solved(self, outcome: Outcome, now: float) -> None:
        """A problem has its outcome: it is on disk when this returns."""
        if self._log:
            self._log.write(outcome.event(now))
            self._log.sync()

    async def watch(self) -> None:
        """Wait for ever; raises RunError when the log cannot be written."""
        await asyncio.shield(self._failure)
