"""A driver for each of several servers, which all searches share; events of what they report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, Self

from tts.base.errors import EndpointUnavailable, TtsError
from tts.driver import (
    Driver,
    EndedRequest,
    IdleEngine,
    Record,
    SharedScore,
    Started,
    Submission,
    UsedGuess,
)
from tts.problem import Problem
from tts.prompting import Models
from tts.runs import events
from tts.runs.log import RunLog
from tts.runs.resume import resumed_work
from tts.runs.state import ProblemState, WorkCounts
from tts.scheduling import Policy, Prefetch
from tts.search import Expand, Generated, ResumedWork, Score, Scored, Search, SearchResult

from .replicas import FAILURES, Attempts, EnginePair, Replicas

_WORK_NAMES: dict[type, events.WorkName] = {Expand: "expand", Score: "score", Prefetch: "prefetch"}
_KIND_NAMES: tuple[events.KindName, ...] = ("main", "eager", "speculative")
"""The log's name of each WorkKind."""


class Journal:
    """The journal of a solver, which writes the events of all its drivers into one log."""

    def __init__(self, log: RunLog | None) -> None:
        self.answers = 0
        """How many requests the engines have answered."""
        self.clock = log.clock if log else time.monotonic
        self.log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._problems: dict[str, ProblemState] = {}
        """The state of each problem that has begun and has not ended."""
        self._cut_tokens: Counter[str] = Counter()
        """The tokens of cancelled requests of each of them."""
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

    def cut_tokens(self, problem: str) -> int:
        """Tokens of its requests that were cancelled in this session, as far as engines say."""
        return self._cut_tokens[problem]

    def end(self, problem: str) -> None:
        """Forget a problem that is solved or given up."""
        self._cut_tokens.pop(problem, None)
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
            if isinstance(record, EndedRequest) and record.cancelled:
                self._cut_tokens[state.id] += record.tokens
        if self.log and not self._failure.done():
            try:
                self.log.write(event)
            except TtsError as error:
                self._failure.set_exception(error)
                self._failure.exception()  # seen, whether or not somebody watches

    def write(self, event: events.ProblemSolved) -> None:
        """Log a problem's outcome: it is on disk when this returns."""
        if self.log:
            self.log.write(event)
            self.log.sync()

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
            work=_WORK_NAMES[type(work)], node=work.node, kind=kind, why=request.cancelled, **common
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


AHEAD_EACH = 2
"""Problems that wait in the driver of each of several servers; then the next is waited for."""
MAX_FAILURES_IN_A_ROW = 5
"""A problem that has failed so often per server, without one answer, ends the run."""

logger = logging.getLogger(__name__)


class Drivers:
    """A driver for each replica, made when it gets its first problem; an async context manager.

    Leaving it cancels unsolved problems on the engines.
    """

    def __init__(
        self, models: Models, replicas: Replicas, policy: Policy, log: RunLog | None = None
    ) -> None:
        """With a log, every event is logged on its clock."""
        self.replicas = replicas
        self.journal = Journal(log)
        self._models = models
        self._policy = policy
        self._drivers: dict[EnginePair, Driver] = {}
        self._submissions: dict[Submission, EnginePair] = {}
        """The searches that have not ended, and where each is."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for driver in self._drivers.values():
            await driver.__aexit__(None, None, None)

    async def search(
        self,
        problem: Problem,
        new_search: Callable[[], Search],
        *,
        priority: int = 0,
        ends: float | None = None,
        time_s: float | None = None,
        on_start: Callable[[], None] = lambda: None,
        on_server: Callable[[str], None] = lambda name: None,
        on_result: Callable[[Generated | Scored], None] | None = None,
        counts_all: bool = False,
    ) -> SearchResult:
        """The result of a problem's search, which goes on elsewhere when its server is down.

        The problem's id is its name in the journal. `new_search` and `on_start` are called at every
        start, `on_server` with the name of each server that it goes to, `on_result` with what the
        search receives, again after a move. `ends` is when it must be solved, on the loop's clock;
        `time_s` are seconds from its first start, after which it ends with its result so far. With
        `counts_all` a search without its whole result lasts until its last requests are counted.
        Raises the TtsError that ended it.
        """
        loop, journal, replicas = asyncio.get_running_loop(), self.journal, self.replicas
        started: float | None = None
        timer: asyncio.TimerHandle | None = None

        def begin() -> Search:
            nonlocal started, timer
            replicas.wake()  # its driver may take another now
            on_start()
            if started is None:
                started = loop.time()
            search = new_search()
            if time_s is not None:
                timer = loop.call_at(started + time_s, driver.stop, submission)
            return search

        attempts = Attempts(
            replicas,
            most=lambda: MAX_FAILURES_IN_A_ROW * len(replicas) if replicas.elastic else 0,
            busy=self._busy,
        )
        while True:
            before = journal.results(problem.id)
            async with attempts.next() as pair:
                on_server(pair.name)
                driver = self._driver_of(pair)
                submission = driver.submit(
                    problem,
                    begin,
                    priority=priority,
                    deadline_s=None if ends is None else max(0.0, ends - loop.time()),
                    resumed=before,
                    on_result=on_result,
                )
                self._submissions[submission] = pair
                whole = False
                try:
                    if replicas.elastic:
                        down = pair.down
                        ends_it: set[asyncio.Future[Any]] = {submission.outcome, down}
                        await asyncio.wait(ends_it, return_when=asyncio.FIRST_COMPLETED)
                        if not submission.done:
                            raise EndpointUnavailable(down.result().message, down.result().hint)
                    result = await submission
                    whole = result.limit is None
                    return result
                except FAILURES as error:
                    logger.info("problem %s leaves %s: %s", problem.id, pair.name, error.message)
                    if journal.results(problem.id).size > before.size or started is None:
                        attempts.reset()
                    raise
                finally:
                    submission.cancel()
                    del self._submissions[submission]
                    if timer:
                        timer.cancel()
                    if counts_all and not whole:
                        await driver.wait_for_requests(submission)

    def stop(self) -> None:
        """End the running searches, each with its result so far; queued ones are left alone."""
        for submission, pair in list(self._submissions.items()):
            self._drivers[pair].stop(submission)

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now on all replicas: generator, verifier."""
        loads = [driver.in_flight for driver in self._drivers.values()]
        return sum(load[0] for load in loads), sum(load[1] for load in loads)

    def _busy(self) -> Collection[str]:
        """The names of the replicas that have enough problems to start."""
        if not self.replicas.elastic:
            return ()
        waiting = Counter(
            pair.name for each, pair in self._submissions.items() if each.search is None
        )
        return [name for name, count in waiting.items() if count >= AHEAD_EACH]

    def _driver_of(self, pair: EnginePair) -> Driver:
        if pair not in self._drivers:
            server = pair.name if self.replicas.elastic else ""
            self._drivers[pair] = Driver(
                self._models,
                *pair.endpoints,
                self._share(pair),
                record=partial(self.journal.record, server=server),
                clock=self.journal.clock,
                counts_rest=self.journal.log is None,  # a log ends with its last problem
            )
        return self._drivers[pair]

    def _share(self, pair: EnginePair) -> Policy:
        """The policy of the next server: its part of all problems in flight, at least one."""
        policy = replace(self._policy, one_core=self._policy.one_core and pair.is_here)
        if policy.problems is None:
            return policy
        share, rest = divmod(policy.problems, len(self.replicas))
        return replace(policy, problems=max(1, share + (len(self._drivers) < rest)))
