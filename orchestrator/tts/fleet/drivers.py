"""The drivers of several servers, which all searches on them share."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, Self

from tts.base.errors import EndpointUnavailable
from tts.driver import Driver, Submission
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.log import RunLog
from tts.scheduling import Policy
from tts.search import Generated, Scored, Search, SearchResult

from .journal import Journal
from .replicas import FAILURES, Attempts, EnginePair, Replicas

AHEAD_EACH = 2
"""Problems that wait in the driver of each of several servers, at most.

The next goes to whichever has started one first."""
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
    ) -> SearchResult:
        """The result of a problem's search, which goes on elsewhere when its server is down.

        The problem's id is its name in the journal. `new_search` and `on_start` are called at every
        start, `on_server` with the name of each server that it goes to, `on_result` with what the
        search receives, again after a move. `ends` is when it must be solved, on the loop's clock;
        `time_s` are seconds from its first start, after which it ends with its result so far.
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
                try:
                    if replicas.elastic:
                        down = pair.down
                        ends_it: set[asyncio.Future[Any]] = {submission.outcome, down}
                        await asyncio.wait(ends_it, return_when=asyncio.FIRST_COMPLETED)
                        if not submission.done:
                            raise EndpointUnavailable(down.result().message, down.result().hint)
                    return await submission
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
                self._share(),
                record=partial(self.journal.record, server=server),
                clock=self.journal.clock,
            )
        return self._drivers[pair]

    def _share(self) -> Policy:
        """The policy of one of several servers: problems in flight are those of all."""
        problems, servers = self._policy.problems, len(self.replicas)
        if problems is None or servers < 2:
            return self._policy
        return replace(self._policy, problems=math.ceil(problems / servers))
