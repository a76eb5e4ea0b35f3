"""Distributes the events of a session's drivers: to the state of their problem, and to a log."""

from __future__ import annotations

import asyncio
import time

import msgspec

from tts.build.errors import TtsError
from tts.runs.events import Event, Generated, Idle, ProblemStarted, Request, Scored
from tts.runs.log import RunLog
from tts.runs.resume import ResumedWork
from tts.runs.state import ProblemState

from .outcome import Outcome
from .result import Usage


class Journal:
    """The journal of a solver, which writes the events of all its drivers into one log."""

    def __init__(self, log: RunLog | None) -> None:
        self.answers = 0
        """How many requests the engines have answered."""
        self.clock = log.clock if log else time.monotonic
        self._log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._problems: dict[str, ProblemState] = {}
        """Those that have begun and have not ended."""
        self._known: dict[str, ResumedWork] = {}
        """Their state when they began."""

    def begin(self, problem: str, resumed: ProblemState | None, *, keep: bool) -> None:
        """Start to track a problem that earlier sessions may have begun.

        With `keep`, all results are kept, because the problem may move to another server.
        """
        self._known[problem] = ResumedWork.of(resumed) if resumed else ResumedWork()
        state = ProblemState(problem, keeps_events=keep)
        if resumed:
            state.work = resumed.work
        self._problems[problem] = state

    def known(self, problem: str) -> ResumedWork:
        """The results so far of a problem that has begun."""
        before, state = self._known[problem], self._problems[problem]
        if not state.keeps_events:
            return before
        now = ResumedWork.of(state)
        return ResumedWork(before.thoughts | now.thoughts, before.scores | now.scores)

    def usage(self, problem: str, now: float, completion_tokens: int) -> Usage:
        """The usage of a problem in all sessions, if it is solved at `now`.

        `completion_tokens` is the number of tokens in its completions.
        """
        state = self._problems[problem]
        seconds = 0.0 if state.started is None else now - state.started
        return Usage.of(state.work, completion_tokens, round(seconds, 6))

    def end(self, problem: str) -> None:
        """Forget a problem that is solved or given up."""
        self._problems.pop(problem, None)
        self._known.pop(problem, None)

    def record(self, event: Event) -> None:
        """Take one event; if the log cannot be written, the run fails, but this call does not."""
        self.answers += isinstance(event, Generated) or (
            isinstance(event, Scored) and not event.cached
        )
        if state := self._problems.get(getattr(event, "problem", "")):
            state.apply(event)
        if self._log and not self._failure.done():
            try:
                self._log.write(event)
            except TtsError as error:
                self._failure.set_exception(error)
                self._failure.exception()  # seen, whether or not somebody watches

    def record_of(self, server: str, event: Event) -> None:
        """Take one event of one of several servers; a problem that moves starts once."""
        if isinstance(event, ProblemStarted):
            state = self._problems.get(event.problem)
            if state and state.keeps_events and state.started is not None:
                return
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
