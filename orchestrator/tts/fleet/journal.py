"""Events of what drivers report: for their problem's state, and for a log."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tts.base.errors import TtsError
from tts.driver import EndedRequest, IdleEngine, Record, SharedScore, Started, UsedGuess
from tts.runs import events
from tts.runs.log import RunLog
from tts.runs.resume import resumed_work
from tts.runs.state import ProblemState, WorkCounts
from tts.scheduling import Prefetch
from tts.search import Expand, ResumedWork, Score, Scored

_WORK_NAMES: dict[type, events.WorkName] = {
    Expand: "expand",
    Score: "score",
    Prefetch: "prefetch",
}
_KIND_NAMES: tuple[events.KindName, ...] = ("main", "eager", "speculative")
"""The log's name of each WorkKind."""


class Journal:
    """The journal of a solver, which writes the events of all its drivers into one log."""

    def __init__(self, log: RunLog | None) -> None:
        self.answers = 0
        """How many requests the engines have answered."""
        self.clock = log.clock if log else time.monotonic
        self._log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._problems: dict[str, ProblemState] = {}
        """The state of each problem that has begun and has not ended."""
        self._results_before: dict[str, ResumedWork] = {}
        """The results that each of them began with."""

    def begin(self, problem: str, resumed: ProblemState | None, *, keep: bool) -> str:
        """Start to track a problem that earlier sessions may have begun; returns its name here.

        Of two with the same id at a time each has a name of its own. With `keep`, all results are
        kept, because the problem may move to another server.
        """
        name, count = problem, 1
        while name in self._problems:
            count += 1
            name = f"{problem} ({count})"
        self._results_before[name] = resumed_work(resumed) if resumed else ResumedWork()
        state = ProblemState(name, keeps_events=keep)
        if resumed:
            state.work = resumed.work
        self._problems[name] = state
        return name

    def results(self, problem: str) -> ResumedWork:
        """The results so far of a problem that has begun."""
        before, state = self._results_before[problem], self._problems[problem]
        if not state.keeps_events:
            return before
        now = resumed_work(state)
        return ResumedWork(before.thoughts | now.thoughts, before.scores | now.scores)

    def work(self, problem: str, now: float) -> tuple[WorkCounts, float]:
        """The engines' work for a problem in all sessions, and its seconds in this one."""
        state = self._problems[problem]
        seconds = 0.0 if state.started is None else now - state.started
        return state.work, round(seconds, 6)

    def end(self, problem: str) -> None:
        """Forget a problem that is solved or given up."""
        self._problems.pop(problem, None)
        self._results_before.pop(problem, None)

    def record(self, record: Record, server: str = "") -> None:
        """Take what a driver reports; if the log cannot be written, the run fails, but not this.

        `server` is the driver's of several; a problem that moves from one to another starts once.
        """
        event = event_of(record, server)
        state = self._problems.get(getattr(event, "problem", ""))
        if isinstance(record, Started) and state and state.keeps_events:
            if state.started is not None:
                return
        elif isinstance(record, EndedRequest) and record.answer is not None:
            self.answers += 1
        if state:
            state.apply(event)
        if self._log and not self._failure.done():
            try:
                self._log.write(event)
            except TtsError as error:
                self._failure.set_exception(error)
                self._failure.exception()  # seen, whether or not somebody watches

    def write(self, event: events.ProblemSolved) -> None:
        """Log a problem's outcome: it is on disk when this returns."""
        if self._log:
            self._log.write(event)
            self._log.sync()

    async def watch(self) -> None:
        """Wait for ever; raises RunError when the log cannot be written."""
        await asyncio.shield(self._failure)


def event_of(record: Record, server: str = "") -> events.Event:
    """The log's event for what the driver of a `server` reports; no name where there is one."""
    match record:
        case EndedRequest():
            return _request_event(record, server)
        case Started(at, problem):
            return events.ProblemStarted(
                t=at,
                problem=problem.id,
                question=problem.question,
                history=problem.history,
                chat_template_kwargs=dict(problem.chat_template_kwargs),
            )
        case SharedScore(at, problem, node, score):
            return events.StepScored(
                t=at, problem=problem, node=node, score=score, cached=True, server=server
            )
        case UsedGuess(at, problem, node):
            return events.Used(t=at, problem=problem, node=node)
        case IdleEngine(engine, since, until, why):
            return events.Idle(
                t=until, engine=engine, since=since, until=until, why=why, server=server
            )


def _request_event(request: EndedRequest, server: str) -> events.Event:
    """The event of a request that was answered or cancelled."""
    work = request.work
    common: dict[str, Any] = {
        "t": request.ended_at,
        "problem": request.problem,
        "sent": request.sent_at,
        "done": request.ended_at,
        "prompt_tokens": request.prompt_tokens,
        "in_flight": request.in_flight,
        "server": server,
    }
    kind = _KIND_NAMES[request.kind]
    if request.cancelled:
        return events.Cancelled(
            work=_WORK_NAMES[type(work)],
            node=work.node,
            kind=kind,
            why=request.cancelled,
            **common,
        )
    if isinstance(request.answer, tuple):
        return events.StepGenerated(
            node=work.node,
            kind=kind,
            tokens=request.tokens,
            thoughts=events.logged(request.answer),
            **common,
        )
    if isinstance(request.answer, Scored):
        return events.StepScored(
            node=work.node,
            kind=kind,
            score=request.answer.score,
            cached=False,
            tokens=request.tokens,
            no_verdict=request.no_verdict,
            critique=request.critique,
            reused=request.reused,
            **common,
        )
    return events.Prefetched(**common)
