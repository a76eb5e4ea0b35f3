"""Solves problems: a driver for each server, and the grading of their results."""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import TaskGroup
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts.build.errors import EndpointTimeout, EndpointUnavailable, TtsError
from tts.driver import Driver
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.log import RunLog
from tts.runs.state import ProblemState
from tts.scheduling import Policy
from tts.search import Search, SearchResult

from .endpoints import own_endpoints
from .journal import Journal
from .outbox import Outbox
from .outcome import judged_outcome
from .progress import RunProgress
from .replicas import FAILURES, Attempts, EnginePair, Replicas
from .result import Result
from .tasks import StepCallbacks, Task

AHEAD = 256
"""Problems that wait in the driver; the others are not handed over yet, and cost nothing."""
AHEAD_EACH = 2
"""Problems that wait in the driver of each of several servers, at most.

The next goes to whichever has started one first."""
MOST_IN_VAIN = 5
"""A problem that has failed so often in a row per server, without one answer, ends the run."""

logger = logging.getLogger(__name__)


class Solver:
    """Solves problems on the replicas of a session, any number at a time. Made by `open_solver`."""

    def __init__(self, replicas: Replicas, drivers: Drivers, journal: Journal) -> None:
        self._replicas = replicas
        self._drivers = drivers
        self._journal = journal
        self._names: set[str] = set()
        self._waiting: Counter[str] = Counter()
        """By replica: the problems that its driver has not started yet."""
        self._full: set[str] = set()
        """Replicas that have enough of them."""
        self._decided = asyncio.Event()
        """Set whenever a problem whose decision others wait for is solved."""
        self._stops: set[Callable[[], None]] = set()
        """For each of a driver's searches, the function that ends it with its results so far."""

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now: generator, verifier."""
        return self._drivers.in_flight

    def stop(self) -> None:
        """End the running searches, each with its result so far; queued ones are left alone."""
        for stop in list(self._stops):
            stop()

    async def solve(
        self,
        problem: Problem,
        task: Task,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        time_s: float | None = None,
        resumed: ProblemState | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> Result:
        """Solve one problem; it is submitted before the first wait, and cancelled with the call.

        `on_start` is called when its search starts. `deadline_s` counts from this call and may end
        it without a result (DeadlineExceeded); `time_s` counts from the start of its search, which
        then ends with its result so far. Raises the TtsError that ended it.
        """
        strategy, grading = task.strategy, task.grading
        name = self._unused_name(problem.id)
        asked = _Asked(
            replace(problem, id=name),
            partial(task.new_search, problem),
            priority,
            _ends_at(deadline_s),
            time_s,
            on_start,
            StepCallbacks(problem, task.on_step) if task.on_step else None,
            task.on_server,
        )
        self._journal.begin(name, resumed, keep=self._replicas.elastic)
        try:
            found = await self._search(asked)
            optional = strategy.factory is not None or found.decision is not None
            outcome = await judged_outcome(
                problem,
                found,
                strategy.vote,
                task.equality,
                grading,
                scores_optional=optional,
                ballot=strategy.ballot,
            )
            now = self._journal.clock()
            usage = self._journal.usage(name, now, outcome.completion_tokens)
        finally:
            self._journal.end(name)
            self._names.discard(name)
        self._journal.solved(outcome, now)
        if task.allocation and found.decision:
            task.allocation.observe(problem.id, found.decision)
            self._decided.set()
        return outcome.result(usage)

    async def _search(self, asked: _Asked) -> SearchResult:
        """Search on one replica and, when it fails, continue on the next."""
        name, replicas = asked.problem.id, self._replicas
        attempts = Attempts(
            replicas,
            most=lambda: MOST_IN_VAIN * len(replicas) if replicas.elastic else 0,
            busy=self._full,
        )
        while True:
            before = self._journal.known(name).size
            async with attempts.next() as pair:
                try:
                    return await self._search_on(pair, asked)
                except FAILURES as error:
                    logger.info("problem %s leaves %s: %s", name, pair.name, error.message)
                    if self._journal.known(name).size > before or not asked.started:
                        attempts.count_anew()
                    raise

    async def _search_on(self, pair: EnginePair, asked: _Asked) -> SearchResult:
        """Search on one replica; raises one of FAILURES when it is lost."""
        driver = self._drivers.of(pair)
        if asked.on_server:
            asked.on_server(pair.name)
        waits = True
        timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()

        def left() -> None:
            nonlocal waits
            if waits:
                waits = False
                self._count_waiting(pair, -1)

        def begin() -> Search:
            left()
            asked.start(loop.time())
            search = asked.new_search()
            if asked.search_ends is not None:
                rest = max(0.0, asked.search_ends - loop.time())
                timers.append(loop.call_later(rest, driver.stop, submission))
            if asked.steps:
                asked.steps.search = search
            return search

        submission = driver.submit(
            asked.problem,
            begin,
            priority=asked.priority,
            deadline_s=None if asked.ends is None else max(0.0, asked.ends - loop.time()),
            resumed=self._journal.known(asked.problem.id),
            on_result=asked.steps.tell if asked.steps else None,
        )
        self._count_waiting(pair, +1)
        stop = partial(driver.stop, submission)
        self._stops.add(stop)
        try:
            if self._replicas.elastic:
                lost = self._replicas.lost(pair)
                ends: set[asyncio.Future[Any]] = {submission.outcome, lost}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not submission.done:
                    raise EndpointUnavailable(lost.result().message, lost.result().hint)
            return await submission
        finally:
            self._stops.discard(stop)
            left()
            for timer in timers:
                timer.cancel()
            submission.cancel()

    def _count_waiting(self, pair: EnginePair, change: int) -> None:
        self._waiting[pair.name] += change
        if self._replicas.elastic and self._waiting[pair.name] >= AHEAD_EACH:
            self._full.add(pair.name)
        elif pair.name in self._full:
            self._full.discard(pair.name)
            self._replicas.wake()

    async def solve_all(
        self,
        problems: Iterable[Problem] | AsyncIterator[Problem],
        task: Task,
        outbox: Outbox,
        *,
        resumed: dict[str, ProblemState] | None = None,
        time_s: float | None = None,
        progress: RunProgress | None = None,
    ) -> None:
        """Solve problems, oldest first, and hand each result over as soon as it is ready.

        A problem is taken when fewer than AHEAD wait to be started, and UNREAD results to be read.
        `resumed` is what there is of begun problems; `progress` is kept up to date. `time_s` is
        that of `solve`. The first that fails ends the others, and its error is raised; but a late
        answer is the failure of its problem alone, and raised when the others are solved. It ends
        them where the engines have answered nothing since another problem failed so, and with
        `auto`, whose later problems depend on earlier ones.
        """
        resumed = resumed or {}
        late: dict[str, EndpointTimeout] = {}
        answers_before = -1
        waiting = asyncio.Semaphore(AHEAD)
        listed = iter(()) if isinstance(problems, AsyncIterator) else iter(problems)

        async def following() -> Problem | None:
            if isinstance(problems, AsyncIterator):
                return await anext(problems, None)
            return next(listed, None)

        async def one(problem: Problem) -> None:
            nonlocal answers_before
            waits = True

            def starts() -> None:
                nonlocal waits
                if waits:
                    waits = False
                    waiting.release()

            try:
                result = await self.solve(
                    problem,
                    task,
                    resumed=resumed.pop(problem.id, None),
                    time_s=time_s,
                    on_start=starts,
                )
                if progress:
                    progress.count(result.correct)
                outbox.put(result)
            except EndpointTimeout as error:
                if task.allocation or self._journal.answers == answers_before:
                    raise
                answers_before = self._journal.answers
                late[problem.id] = error
                logger.warning("problem %s has failed: %s", problem.id, error.message)
            finally:
                starts()

        try:
            async with TaskGroup() as run:
                watch = run.create_task(self._journal.watch())
                async with TaskGroup() as group:
                    while True:
                        await waiting.acquire()
                        await outbox.room()
                        problem = await following()
                        if problem is None:
                            break
                        await self._advisable(problem, task)
                        group.create_task(one(problem))
                watch.cancel()
        except BaseExceptionGroup as failures:
            raise _most_telling(failures) from failures
        if late:
            error = next(iter(late.values()))
            names = f"{', '.join(late):.100}"
            failed = "1 problem has" if len(late) == 1 else f"{len(late)} problems have"
            raise EndpointTimeout(f"{failed} failed ({names}): {error.message}", error.hint)

    async def _advisable(self, problem: Problem, task: Task) -> None:
        """Wait until the problems are solved whose decisions its advice depends on."""
        while task.allocation and not task.allocation.ready(problem.id):
            self._decided.clear()
            await self._decided.wait()

    def _unused_name(self, name: str) -> str:
        """A problem's id as the driver's events say it: of two at a time each has its own."""
        unused, count = name, 1
        while unused in self._names:
            count += 1
            unused = f"{name} ({count})"
        self._names.add(unused)
        return unused


class Drivers:
    """A driver for each replica, made when it gets its first problem."""

    def __init__(
        self,
        models: Models,
        replicas: Replicas,
        policy: Policy,
        journal: Journal,
    ) -> None:
        self._models = models
        self._replicas = replicas
        self._policy = policy
        self._journal = journal
        self._drivers: dict[EnginePair, Driver] = {}

    def of(self, pair: EnginePair) -> Driver:
        """The driver of a replica."""
        if pair not in self._drivers:
            several = self._replicas.elastic
            self._drivers[pair] = Driver(
                self._models,
                *own_endpoints(pair),
                self._share(),
                record=partial(self._journal.record, server=pair.name if several else ""),
                clock=self._journal.clock,
            )
        return self._drivers[pair]

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now on all replicas: generator, verifier."""
        loads = [driver.in_flight for driver in self._drivers.values()]
        return sum(load[0] for load in loads), sum(load[1] for load in loads)

    async def aclose(self) -> None:
        """Cancel unsolved problems, and wait until nothing is in flight."""
        for driver in self._drivers.values():
            await driver.__aexit__(None, None, None)

    def _share(self) -> Policy:
        """The policy of one of several servers: problems in flight are those of all."""
        problems, servers = self._policy.problems, len(self._replicas)
        if problems is None or servers < 2:
            return self._policy
        return replace(self._policy, problems=math.ceil(problems / servers))


@asynccontextmanager
async def open_solver(
    models: Models,
    replicas: Replicas,
    policy: Policy,
    log: RunLog | None = None,
) -> AsyncIterator[Solver]:
    """A solver on a session's replicas; with a log, every event is logged on its clock.

    Unsolved problems are cancelled on the engines at the end.
    """
    journal = Journal(log)
    drivers = Drivers(models, replicas, policy, journal)
    try:
        yield Solver(replicas, drivers, journal)
    finally:
        await drivers.aclose()


@dataclass
class _Asked:
    """A problem that is to be solved, on whichever replica."""

    problem: Problem
    new_search: Callable[[], Search]
    priority: int
    ends: float | None
    """When it must be solved, on the loop's clock."""
    time_s: float | None
    """Seconds for its search, from its first start."""
    on_start: Callable[[], None]
    steps: StepCallbacks | None
    on_server: Callable[[str], None] | None
    started: bool = False
    search_ends: float | None = None

    def start(self, now: float) -> None:
        """Its search starts, perhaps once more."""
        if not self.started:
            self.started = True
            if self.time_s is not None:
                self.search_ends = now + self.time_s
            self.on_start()


def _ends_at(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else asyncio.get_running_loop().time() + deadline_s


def _most_telling(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure to show of those that ended a run together: a TtsError if there is one."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        failure = pending.pop(0)
        if isinstance(failure, BaseExceptionGroup):
            pending.extend(failure.exceptions)
        else:
            leaves.append(failure)
    return next((leaf for leaf in leaves if isinstance(leaf, TtsError)), leaves[0])
